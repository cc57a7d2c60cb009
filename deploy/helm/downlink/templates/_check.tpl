{{/*
What the schema can't say: values that don't go together. All problems are told at
once, each with what to do.
*/}}
{{- define "downlink.check" -}}
{{- $problems := list -}}
{{- range (list "imageProblems" "logProblems" "settingProblems" "governorProblems" "timeProblems" "wayInProblems") -}}
{{- $found := include (printf "downlink.%s" .) $ | trim -}}
{{- if $found -}}
{{- $problems = append $problems $found -}}
{{- end -}}
{{- end -}}
{{- if $problems -}}
{{- fail (printf "\n\nThe values can't be installed as they are:\n%s\n" (join "\n" $problems)) -}}
{{- end -}}
{{- end -}}

{{- define "downlink.imageProblems" -}}
{{- if not .Values.image.repository }}
- image.repository is missing: say where your image of Downlink is, as REGISTRY/NAME (deploy/docker/README.md builds it)
{{- end -}}
{{- if not (dig "limits" "memory" "" .Values.resources) }}
- resources.limits.memory is missing: the garbage collector's bound (GOMEMLIMIT) is computed from it; README.md, "How much memory", has the arithmetic
{{- end -}}
{{- end -}}

{{- define "downlink.logProblems" -}}
{{- $redis := list -}}
{{- if .Values.redis.url }}{{ $redis = append $redis "redis.url" }}{{ end -}}
{{- if .Values.redis.existingSecret.name }}{{ $redis = append $redis "redis.existingSecret.name" }}{{ end -}}
{{- if .Values.embeddedLog.enabled -}}
{{- if $redis }}
- embeddedLog.enabled and {{ join " and " $redis }} are given: events are kept in one place only; take away one of them
{{- end -}}
{{- if .Values.autoscaling.enabled }}
- embeddedLog.enabled with autoscaling.enabled: the embedded log has one owner, so there can be one gateway only; keep the log in Redis (redis.url), or switch autoscaling off
{{- else if ne (int .Values.replicas) 1 }}
- embeddedLog.enabled with replicas {{ .Values.replicas }}: the embedded log has one owner, so there can be one gateway only; keep the log in Redis (redis.url), or set replicas to 1
{{- end -}}
{{- else if not $redis }}
- there is no log: set redis.url (redis://USER:PASSWORD@HOST:6379/0) or redis.existingSecret.name (a Secret that holds such a URL); for a single gateway embeddedLog.enabled with replicas 1
{{- else if and .Values.redis.existingSecret.name .Values.redis.passwordSecret.name }}
- redis.existingSecret.name and redis.passwordSecret.name are both given: the first holds a whole URL, the second the password for redis.url; take away one of them
{{- else if eq (len $redis) 2 }}
- redis.url and redis.existingSecret.name are both given: take away one of them
{{- else if and .Values.redis.url (not (regexMatch "^rediss?(\\+(sentinel|cluster))?://" .Values.redis.url)) }}
- redis.url isn't a URL of a Redis: it begins with redis://, rediss://, redis+sentinel:// or redis+cluster:// (docs/operate/topologies.md)
{{- else if and .Values.redis.passwordSecret.name (not (contains "$(REDIS_PASSWORD)@" .Values.redis.url)) }}
- redis.passwordSecret.name is given, and redis.url doesn't say where the password belongs: write it as $(REDIS_PASSWORD), as in redis+sentinel://:$(REDIS_PASSWORD)@HOST:26379/MASTER
{{- else if and (contains "$(REDIS_PASSWORD)" .Values.redis.url) (not .Values.redis.passwordSecret.name) }}
- redis.url names $(REDIS_PASSWORD), and redis.passwordSecret.name doesn't say which Secret it is in
{{- end -}}
{{- end -}}

{{- define "downlink.settingProblems" -}}
{{- $owned := dict
  "listen" "service.port is where devices reach it"
  "backend_listen" "backendService.port is where publishers reach it"
  "log" "use redis or embeddedLog"
  "max_connections" "use connectionsPerGateway"
  "drain_wait" "use drain.waitSeconds"
  "drain_quiet" "use drain.waitSeconds"
  "drain_rate" "use drain.reconnectsPerSecond"
  "drain_deadline" "it is computed"
  "shutdown_timeout" "use drain.lastSeconds"
  "shutdown_file" "it is on a volume of the chart's"
  "governor_file" "use governor.settings" -}}
{{- $known := dict -}}
{{- range splitList "\n" (.Files.Get "files/settings.txt") -}}
{{- $known = set $known (first (splitList " " .)) (hasSuffix " limit" .) -}}
{{- end -}}
{{- range $place := list "config" "limits" -}}
{{- range $key, $value := get $.Values $place -}}
{{- if contains "-" $key }}
- {{ $place }}.{{ $key }}: settings are written with underscores here: {{ $key | replace "-" "_" }}
{{- else if hasKey $owned $key }}
- {{ $place }}.{{ $key }} is set by the chart: {{ get $owned $key }}
{{- else if or (kindIs "map" $value) (kindIs "invalid" $value) }}
- {{ $place }}.{{ $key }} isn't a value: a text, a number, true or false, or a list
{{- else if not (hasKey $known $key) }}
- {{ $place }}.{{ $key }} isn't a setting of this version; docs/reference/configuration.md has them all
{{- else if and (eq $place "limits") (not (get $known $key)) }}
- limits.{{ $key }} can't change while a gateway runs: it belongs into config
{{- else if or (eq (toString $value) "") (eq (toString $value) "[]") }}
- {{ $place }}.{{ $key }} is empty: leave it out
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $key, $value := .Values.limits -}}
{{- if hasKey $.Values.config $key }}
- {{ $key }} is in config and in limits: keep it in limits if it may change while the gateways run
{{- end -}}
{{- end -}}
{{- $none := list "" "none" "[none]" -}}
{{- if and (has (.Values.config.auth | default "" | toString) $none) (not .Values.config.insecure_no_auth) }}
- config.auth is missing, or none: say how devices prove who they are (docs/operate/auth.md); to try it out, config.insecure_no_auth: true lets everybody be any device
{{- end -}}
{{- if and (has (.Values.config.backend_auth | default "" | toString) $none) (not .Values.config.insecure_open_backend) }}
- config.backend_auth is missing, or none: say how publishers prove who they are (docs/operate/publishers.md); where networkPolicy.backendFrom is all the protection that you need, config.insecure_open_backend: true
{{- end -}}
{{- $paths := list -}}
{{- range .Values.secretMounts -}}
{{- if has .path $paths }}
- secretMounts: path {{ .path }} is there twice
{{- end -}}
{{- if has .path (list "config" "drain" "governor" "kafka") }}
- secretMounts: path {{ .path }} is the chart's own; take another one
{{- end -}}
{{- $paths = append $paths .path -}}
{{- end -}}
{{- end -}}

{{- define "downlink.timeProblems" -}}
{{- if lt (int .Values.drain.reconnectsPerSecond) (int .Values.gatewaysAtOnce) }}
- drain.reconnectsPerSecond ({{ .Values.drain.reconnectsPerSecond }}) is less than gatewaysAtOnce ({{ .Values.gatewaysAtOnce }}): each leaving gateway moves at least one device a second
{{- end -}}
{{- if lt (int (include "downlink.graceSeconds" .)) (int (include "downlink.leastGraceSeconds" .)) }}
- terminationGracePeriodSeconds {{ .Values.terminationGracePeriodSeconds }} is too small; a gateway needs {{ include "downlink.graceArithmetic" . }}. Leave it out, or make it shorter by more drain.reconnectsPerSecond or fewer connectionsPerGateway
{{- end -}}
{{- if gt (int (include "downlink.graceSeconds" .)) 86400 }}
- a gateway would take {{ include "downlink.graceSeconds" . }} s to leave, and a day (86400 s) is the most that it can be told; set more drain.reconnectsPerSecond or fewer connectionsPerGateway
{{- end -}}
{{- if gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas) }}
- autoscaling.minReplicas ({{ .Values.autoscaling.minReplicas }}) is more than autoscaling.maxReplicas ({{ .Values.autoscaling.maxReplicas }})
{{- end -}}
{{- end -}}

{{- define "downlink.wayInProblems" -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) }}
- ingress.enabled without ingress.hosts: name the hosts that devices ask for
{{- end -}}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) }}
- httpRoute.enabled without httpRoute.parentRefs: name the Gateway that devices come through
{{- end -}}
{{- if and .Values.ingress.enabled (eq .Values.ingress.controller "alb") (gt (int64 (include "downlink.keepaliveMillis" .)) 60000) }}
- ingress.controller alb: the load balancer's idle time is 75 s (a gateway closes unused connections after 90 s), and config.keepalive ({{ .Values.config.keepalive }}) must be 60s or less
{{- end -}}
{{- if and .Values.ingress.enabled (eq .Values.ingress.controller "alb") (gt (int (include "downlink.graceSeconds" .)) 3600) }}
- ingress.controller alb: a gateway needs {{ include "downlink.graceSeconds" . }} s to leave, and a load balancer of AWS cuts what is open after 3600 s at the latest (deregistration delay); set more drain.reconnectsPerSecond or fewer connectionsPerGateway
{{- end -}}
{{- end -}}
