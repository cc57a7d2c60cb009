{{/*
What can be asked of the back end's port from inside the container, without TLS
and without a token that isn't there.
*/}}

{{/* Whether publishers and operators need no token; "" if they do. */}}
{{- define "downlink.openBackend" -}}
{{- if has (.Values.config.backend_auth | default "none" | toString) (list "none" "[none]") -}}yes{{- end -}}
{{- end -}}

{{/* The flag by which a command shows its token; "" if it needs none. */}}
{{- define "downlink.tokenFlag" -}}
{{- if .Values.drain.tokenSecret.name -}}--token-file, /etc/downlink/drain/token{{- end -}}
{{- end -}}

{{/* Whether the port can be asked. */}}
{{- define "downlink.askable" -}}
{{- if and (eq (include "downlink.backendScheme" .) "http") (or (include "downlink.openBackend" .) .Values.drain.tokenSecret.name) -}}yes{{- end -}}
{{- end -}}

{{/*
The command before SIGTERM; "" if the port can't be asked. SIGTERM begins the same
drain, so nothing is lost without it.
*/}}
{{- define "downlink.preStop" -}}
{{- if include "downlink.askable" . -}}
[{{ join ", " (compact (list "/downlink" "drain" (include "downlink.tokenFlag" .))) }}]
{{- end -}}
{{- end -}}

{{- define "downlink.limitsCommand" -}}
{{- if include "downlink.askable" . -}}
{{ join " " (compact (list "/downlink limits" (include "downlink.tokenFlag" . | replace "," "") "max_connections")) }}
{{- end -}}
{{- end -}}
