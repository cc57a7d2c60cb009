{{/*
The gateway's settings are variables of its pod: a pod keeps those that it was made
with, whatever an upgrade brings, and so do all that its ReplicaSet makes in its place.
Limits are in a file, which every gateway reads again while it runs.
*/}}
{{- define "downlink.environ" -}}
{{- include "downlink.logEnviron" . }}
{{- $settings := dict
  "config" "/etc/downlink/config/downlink.yml"
  "listen" ":8080"
  "backend_listen" ":9090"
  "max_connections" .Values.connectionsPerGateway
  "drain_wait" (printf "%ds" (int .Values.drain.waitSeconds))
  "drain_rate" (include "downlink.drainRate" .)
  "drain_deadline" (printf "%ds" (sub (int (include "downlink.graceSeconds" .)) (int (include "downlink.reserveSeconds" .))))
  "shutdown_timeout" (printf "%ds" (int .Values.drain.lastSeconds))
  "shutdown_file" "/run/downlink/shutdown"
  "governor_file" "/etc/downlink/governor/governor.yml"
  "log_format" "json" -}}
{{- range $key, $value := merge (dict) .Values.config $settings }}
- name: {{ printf "DOWNLINK_%s" (upper $key) }}
  value: {{ include "downlink.text" $value | replace "$" "$$" | quote }}
{{- end }}
{{- end -}}

{{/* Where the log is: the one setting that may hold a password. */}}
{{- define "downlink.logEnviron" -}}
{{- $secret := include "downlink.logSecret" . | fromJson -}}
{{- if .Values.embeddedLog.enabled -}}
- name: DOWNLINK_LOG
  value: file:/var/lib/downlink/log
{{- else if .Values.redis.passwordSecret.name -}}
# Kubernetes puts it into the next one, and so it must stand before it.
- name: REDIS_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ .Values.redis.passwordSecret.name }}
      key: {{ .Values.redis.passwordSecret.key }}
- name: DOWNLINK_LOG
  value: {{ .Values.redis.url | replace "$" "$$" | replace "$$(REDIS_PASSWORD)" "$(REDIS_PASSWORD)" | quote }}
{{- else -}}
- name: DOWNLINK_LOG
  valueFrom:
    secretKeyRef:
      name: {{ $secret.name }}
      key: {{ $secret.key }}
{{- end }}
{{- end -}}

{{/* The file. */}}
{{- define "downlink.limits" -}}
# Limits: the gateways read them again while they run. All other settings are
# variables of their pods.
{{- range $key, $value := .Values.limits }}
{{ $key }}: {{ include "downlink.text" $value | quote }}
{{- end }}
{{- end -}}

{{/* A value as the gateway reads it. Numbers of Helm are floats, and 1e+06 isn't a
number of the gateway's. */}}
{{- define "downlink.text" -}}
{{- if kindIs "slice" . -}}
{{ join ", " . }}
{{- else if kindIs "float64" . -}}
{{- if eq (floor .) . }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- else -}}
{{ . }}
{{- end -}}
{{- end -}}

{{/* How long a stream may be silent, in milliseconds. */}}
{{- define "downlink.keepaliveMillis" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ms|s|m|h)" (.Values.config.keepalive | default "20s" | toString) -1 -}}
{{- $unit := regexFind "[a-z]+" . -}}
{{- $sum = addf $sum (mulf (float64 (trimSuffix $unit .)) (get $units $unit)) -}}
{{- end -}}
{{- int64 (ceil $sum) -}}
{{- end -}}

{{/*
How long what stands in front lets a stream be silent: until three keep-alives have
failed to come, and no less than a poll may be (60 s, and 5 s more), with some room.
*/}}
{{- define "downlink.idleSeconds" -}}
{{- max 75 (add 15 (div (add 999 (mul 3 (int64 (include "downlink.keepaliveMillis" .)))) 1000)) -}}
{{- end -}}
