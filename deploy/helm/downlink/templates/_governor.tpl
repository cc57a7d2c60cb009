{{/*
The governor's file. A change of it makes no rollout, so nothing of it is in the pods.
*/}}

{{/* What must be said to install without a governor. */}}
{{- define "downlink.ungoverned" -}}
I accept that nothing protects Redis and the gateways
{{- end -}}

{{/* Whether that was said; "" if not. */}}
{{- define "downlink.governorOff" -}}
{{- if eq (toString .Values.governor.disabled | trim) (include "downlink.ungoverned" .) -}}yes{{- end -}}
{{- end -}}

{{/* Whether the password of Kafka is mounted; "" if not. */}}
{{- define "downlink.kafkaPassword" -}}
{{- if and .Values.governor.kafka.brokers .Values.governor.kafka.passwordSecret.name -}}yes{{- end -}}
{{- end -}}

{{- define "downlink.governorFile" -}}
# The gateways read it again while they run.
{{- $file := deepCopy .Values.governor.settings -}}
{{- if include "downlink.governorOff" . -}}
{{- $file = set $file "on" false -}}
{{- end -}}
{{- if .Values.governor.kafka.brokers -}}
{{- $kafka := dict "brokers" .Values.governor.kafka.brokers "groups" .Values.governor.kafka.groups -}}
{{- with .Values.governor.kafka.user }}{{ $kafka = set $kafka "user" . }}{{ end -}}
{{- with .Values.governor.kafka.mechanism }}{{ $kafka = set $kafka "mechanism" . }}{{ end -}}
{{- if not (kindIs "invalid" .Values.governor.kafka.tls) }}{{ $kafka = set $kafka "tls" .Values.governor.kafka.tls }}{{ end -}}
{{- if include "downlink.kafkaPassword" . }}{{ $kafka = set $kafka "password_file" "/etc/downlink/kafka/password" }}{{ end -}}
{{- $file = set $file "kafka" $kafka -}}
{{- end }}
{{ toYaml $file }}
{{- end -}}

{{- define "downlink.governorProblems" -}}
{{- $say := printf "governor.disabled: %q" (include "downlink.ungoverned" .) -}}
{{- $off := include "downlink.governorOff" . -}}
{{- if and .Values.governor.disabled (not $off) }}
- governor.disabled isn't the sentence: to install without the governor, write {{ $say }}
{{- end -}}
{{- range $place := list "config" "limits" -}}
{{- if hasKey (get $.Values $place) "governor" }}
- {{ $place }}.governor is set by the chart: the governor is on; without it nothing is held back before Redis is full, or a gateway out of memory. If that is what you want, write {{ $say }}
{{- end -}}
{{- end -}}
{{- if or (hasKey .Values.governor.settings "on") (hasKey .Values.governor.settings "true") }}
- governor.settings.on is set by the chart: the governor is on; without it nothing is held back before Redis is full, or a gateway out of memory. If that is what you want, write {{ $say }}
{{- end -}}
{{- if hasKey .Values.governor.settings "floor" }}
- governor.settings.floor is the limit governor_floor, in percent: write limits.governor_floor
{{- end -}}
{{- if not $off -}}
{{- range $place := list "config" "limits" -}}
{{- if ge (get (get $.Values $place) "governor_floor" | toString | int) 100 }}
- {{ $place }}.governor_floor 100 lets the governor lower nothing: that is as good as without it. If that is what you want, write {{ $say }}
{{- end -}}
{{- end -}}
{{- $memory := dig "signals" "redis_memory" dict .Values.governor.settings -}}
{{- $blind := or (and (hasKey $memory "threshold") (or (eq (float64 $memory.threshold) 0.0) (ge (float64 $memory.threshold) 1.0))) (and (hasKey $memory "levers") (not $memory.levers)) -}}
{{- if and $blind (not .Values.embeddedLog.enabled) }}
- governor.settings.signals.redis_memory moves nothing, so nothing is held back before Redis is full. Set a threshold below 1 and a lever; if that is what you want, write {{ $say }}
{{- end -}}
{{- end -}}
{{- include "downlink.kafkaProblems" . -}}
{{- end -}}

{{- define "downlink.kafkaProblems" -}}
{{- $kafka := .Values.governor.kafka -}}
{{- if and $kafka.brokers (not $kafka.groups) }}
- governor.kafka.brokers without governor.kafka.groups: name the consumer groups whose lag counts
{{- end -}}
{{- if and (not $kafka.brokers) (or $kafka.groups $kafka.user $kafka.passwordSecret.name) }}
- governor.kafka.brokers is missing: name some of Kafka's brokers, as HOST:PORT
{{- end -}}
{{- if and $kafka.user (not $kafka.passwordSecret.name) }}
- governor.kafka.user without governor.kafka.passwordSecret.name: name the Secret that holds its password
{{- end -}}
{{- if and (not $kafka.user) (or $kafka.mechanism $kafka.passwordSecret.name) }}
- governor.kafka.mechanism or passwordSecret without governor.kafka.user: say whose password it is
{{- end -}}
{{- if and (eq $kafka.mechanism "PLAIN") (kindIs "invalid" $kafka.tls) }}
- governor.kafka.mechanism PLAIN sends the password itself: set governor.kafka.tls ({} for the system's authorities), or use SCRAM-SHA-512
{{- end -}}
{{- end -}}
