{{/* What the objects are called, and by which labels they find each other. */}}

{{- define "downlink.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "downlink.backendName" -}}
{{ include "downlink.fullname" . }}-backend
{{- end -}}

{{- define "downlink.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of pods. Nothing of the chart's version: it alone makes no rollout. */}}
{{- define "downlink.podLabels" -}}
{{ include "downlink.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | trunc 63 | quote }}
{{- end -}}

{{- define "downlink.labels" -}}
{{ include "downlink.podLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{- end -}}

{{- define "downlink.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "downlink.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "downlink.fullname" .) }}
{{- end -}}

{{/* The Secret and the key that hold the URL of Redis, as JSON. */}}
{{- define "downlink.logSecret" -}}
{{- if .Values.redis.existingSecret.name -}}
{{ dict "name" .Values.redis.existingSecret.name "key" .Values.redis.existingSecret.key | toJson }}
{{- else -}}
{{ dict "name" (printf "%s-redis" (include "downlink.fullname" .)) "key" "url" | toJson }}
{{- end -}}
{{- end -}}

{{/* Whether that Secret is the chart's; "" if not. */}}
{{- define "downlink.ownSecret" -}}
{{- if and .Values.redis.url (not .Values.redis.passwordSecret.name) (not .Values.embeddedLog.enabled) -}}yes{{- end -}}
{{- end -}}

{{/* The scheme of each port. */}}
{{- define "downlink.deviceScheme" -}}
{{- if .Values.config.tls_cert_file -}}https{{- else -}}http{{- end -}}
{{- end -}}
{{- define "downlink.backendScheme" -}}
{{- if .Values.config.backend_tls_cert_file -}}https{{- else -}}http{{- end -}}
{{- end -}}
