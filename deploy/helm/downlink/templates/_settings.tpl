{{/*
The gateway's file. Settings of the chart and of config decide about the pod, and a
change of them makes a rollout; limits are taken over while the gateway runs.
*/}}
{{- define "downlink.settings" -}}
# Written by the chart.
listen: ":8080"
backend_listen: ":9090"
{{- if .Values.embeddedLog.enabled }}
log: file:/var/lib/downlink/log
{{- end }}
max_connections: {{ .Values.connectionsPerGateway | int }}
drain_wait: {{ .Values.drain.waitSeconds | int }}s
drain_rate: {{ include "downlink.drainRate" . }}
drain_deadline: {{ sub (int (include "downlink.graceSeconds" .)) (int (include "downlink.reserveSeconds" .)) }}s
shutdown_timeout: {{ .Values.drain.lastSeconds | int }}s
shutdown_file: /run/downlink/shutdown
{{- if not (hasKey .Values.config "log_format") }}
log_format: json
{{- end }}
{{- with .Values.config }}
# From config.
{{- range $key, $value := . }}
{{ $key }}: {{ include "downlink.setting" $value }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "downlink.limits" -}}
{{- with .Values.limits }}

# From limits.
{{- range $key, $value := . }}
{{ $key }}: {{ include "downlink.setting" $value }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Numbers of Helm are floats, and 1e+06 isn't a number of the gateway's. */}}
{{- define "downlink.setting" -}}
{{- if kindIs "slice" . -}}
{{ join ", " . | quote }}
{{- else if kindIs "float64" . -}}
{{- if eq (floor .) . }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- else if kindIs "string" . -}}
{{ . | quote }}
{{- else -}}
{{ . }}
{{- end -}}
{{- end -}}
