{{/*
How long things take, in whole seconds, and how much memory. The gateway works
out the same (package drain); a test compares them.
*/}}

{{/* What one leaving gateway may make of the fleet's reconnects. */}}
{{- define "downlink.drainRate" -}}
{{- max 1 (div (int .Values.drain.reconnectsPerSecond) (int .Values.gatewaysAtOnce)) -}}
{{- end -}}

{{/* Telling every device when to come back (10,000 a second, and 0.1 s), rounded up. */}}
{{- define "downlink.tellSeconds" -}}
{{- add 1 (div (int .Values.connectionsPerGateway) 10000) -}}
{{- end -}}

{{/* Closing every connection at that rate, rounded up. */}}
{{- define "downlink.closeSeconds" -}}
{{- $n := int .Values.connectionsPerGateway -}}
{{- $rate := int (include "downlink.drainRate" .) -}}
{{- div (add $n $rate -1) $rate -}}
{{- end -}}

{{/* The time that a gateway needs to leave: drain_deadline. */}}
{{- define "downlink.drainSeconds" -}}
{{- add (int .Values.drain.waitSeconds) (int (include "downlink.tellSeconds" .)) (int (include "downlink.closeSeconds" .)) (int .Values.drain.lastSeconds) -}}
{{- end -}}

{{/* What the process needs to end, beside all that it waits for. */}}
{{- define "downlink.reserveSeconds" -}}5{{- end -}}

{{- define "downlink.leastGraceSeconds" -}}
{{- add (int (include "downlink.drainSeconds" .)) (int (include "downlink.reserveSeconds" .)) -}}
{{- end -}}

{{- define "downlink.graceArithmetic" -}}
{{ .Values.drain.waitSeconds }} s until the load balancer has noticed (drain.waitSeconds) + {{ include "downlink.tellSeconds" . }} s to tell {{ .Values.connectionsPerGateway }} devices when to come back + {{ include "downlink.closeSeconds" . }} s to close {{ .Values.connectionsPerGateway }} connections (connectionsPerGateway) at {{ include "downlink.drainRate" . }} a second (drain.reconnectsPerSecond / gatewaysAtOnce) + {{ .Values.drain.lastSeconds }} s for requests to end (drain.lastSeconds) + {{ include "downlink.reserveSeconds" . }} s in reserve = {{ include "downlink.leastGraceSeconds" . }} s
{{- end -}}

{{- define "downlink.graceSeconds" -}}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds -}}
{{- include "downlink.leastGraceSeconds" . -}}
{{- else -}}
{{- int .Values.terminationGracePeriodSeconds -}}
{{- end -}}
{{- end -}}

{{/*
How long a new gateway must have been ready before a rollout goes on: until the
one that it replaces has left. Kubernetes doesn't wait for pods that terminate, so
without this all old gateways would be leaving at the same time.
*/}}
{{- define "downlink.minReadySeconds" -}}
{{- if kindIs "invalid" .Values.minReadySeconds -}}
{{- include "downlink.drainSeconds" . -}}
{{- else -}}
{{- int .Values.minReadySeconds -}}
{{- end -}}
{{- end -}}

{{/* Bytes of a quantity of memory such as 1Gi or 512M. */}}
{{- define "downlink.bytes" -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $number := regexFind "^[0-9.]+" . -}}
{{- mulf (float64 $number) (get $units (trimPrefix $number .)) | int64 -}}
{{- end -}}

{{/*
GOMEMLIMIT: 80 % of the container's limit. The rest is the kernel's, whose memory
for sockets counts against the same limit: some 8 KiB for each connection, and
up to 80 KiB while a device takes nothing.
*/}}
{{- define "downlink.goMemLimit" -}}
{{- $bytes := int64 (include "downlink.bytes" (toString .Values.resources.limits.memory)) -}}
{{- div (div (mul $bytes 8) 10) 1048576 -}}MiB
{{- end -}}
