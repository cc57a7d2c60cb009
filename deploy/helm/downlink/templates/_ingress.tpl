{{/*
What lets a stream live behind an ingress: no buffering, and an idle time of some
keep-alives. More would leave devices at a gateway that is frozen.
*/}}

{{/* ingress-nginx reads the first half, F5's controller the second. */}}
{{- define "downlink.nginxAnnotations" -}}
nginx.ingress.kubernetes.io/backend-protocol: {{ include "downlink.deviceScheme" . | upper }}
nginx.ingress.kubernetes.io/proxy-buffering: "off"
nginx.ingress.kubernetes.io/proxy-http-version: "1.1"
nginx.ingress.kubernetes.io/proxy-read-timeout: {{ include "downlink.idleSeconds" . | quote }}
nginx.ingress.kubernetes.io/proxy-send-timeout: {{ include "downlink.idleSeconds" . | quote }}
nginx.org/proxy-buffering: "false"
nginx.org/proxy-read-timeout: {{ include "downlink.idleSeconds" . }}s
nginx.org/proxy-send-timeout: {{ include "downlink.idleSeconds" . }}s
{{- if eq (include "downlink.deviceScheme" .) "https" }}
nginx.org/ssl-services: {{ include "downlink.fullname" . }}
{{- end }}
{{- end -}}

{{/*
The idle time is also how long an unused connection to a gateway is kept, and a gateway
closes it after 90 s; so it is fixed. The deregistration delay is how long AWS keeps what is open: as long as a gateway
needs to leave.
*/}}
{{- define "downlink.albAnnotations" -}}
alb.ingress.kubernetes.io/target-type: ip
alb.ingress.kubernetes.io/backend-protocol: {{ include "downlink.deviceScheme" . | upper }}
alb.ingress.kubernetes.io/healthcheck-path: /readyz
alb.ingress.kubernetes.io/healthcheck-interval-seconds: "5"
alb.ingress.kubernetes.io/healthcheck-timeout-seconds: "2"
alb.ingress.kubernetes.io/healthy-threshold-count: "2"
alb.ingress.kubernetes.io/unhealthy-threshold-count: "2"
alb.ingress.kubernetes.io/load-balancer-attributes: idle_timeout.timeout_seconds=75
alb.ingress.kubernetes.io/target-group-attributes: deregistration_delay.timeout_seconds={{ include "downlink.graceSeconds" . }},load_balancing.algorithm.type=least_outstanding_requests
{{- end -}}
