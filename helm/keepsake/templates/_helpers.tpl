{{/* Names */}}

{{- define "keepsake.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "keepsake.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "keepsake.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What selects pods: never changed, Deployments keep their selectors. */}}
{{- define "keepsake.selector" -}}
app.kubernetes.io/name: {{ include "keepsake.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "keepsake.labels" -}}
{{ include "keepsake.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of a pod besides those that select it: root, own (of its component). */}}
{{- define "keepsake.podLabels" -}}
{{- with merge (dict) (default dict .own) (default dict .root.Values.podLabels) (default dict .root.Values.commonLabels) -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{/* Annotations of a pod: root, own (of its component). */}}
{{- define "keepsake.podAnnotations" -}}
{{- with merge (dict) (default dict .own) (default dict .root.Values.podAnnotations) -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{- define "keepsake.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "keepsake.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "keepsake.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether pods have a volume, for the file of SQLite: "true" or "" */}}
{{- define "keepsake.hasVolume" -}}
{{- if eq .Values.index.kind "sqlite" -}}true{{- end -}}
{{- end -}}

{{- define "keepsake.hasMigration" -}}
{{- if and .Values.migration.enabled (eq .Values.index.kind "postgres") -}}true{{- end -}}
{{- end -}}

{{/*
Seconds from a pod's end to SIGKILL: the pause, the time in which it serves on,
then one shutdown deadline for requests, one for running jobs and one for
writes, and some to spare.
*/}}
{{- define "keepsake.gracePeriod" -}}
{{- $deadline := dig "server" "shutdown_deadline_seconds" 30 .root.Values.config | int64 -}}
{{- $drain := dig "server" "drain_seconds" 5 .root.Values.config | int64 -}}
{{- add (int64 .pause) $drain (mul 3 $deadline) 5 -}}
{{- end -}}

{{/* The values of secrets that were given inline, by their keys in the chart's own Secret. */}}
{{- define "keepsake.inlineSecrets" -}}
{{- $values := dict -}}
{{- with .Values.index -}}
{{- if and (eq .kind "postgres") (not .existingSecret) -}}
{{- $_ := set $values "index-url" .url -}}
{{- if .jobsUrl }}{{ $_ := set $values "index-jobs-url" .jobsUrl }}{{ end -}}
{{- end -}}
{{- end -}}
{{- with .Values.blobs -}}
{{- if .accessKeyId -}}
{{- $_ := set $values "blobs-access-key-id" .accessKeyId -}}
{{- $_ := set $values "blobs-secret-access-key" .secretAccessKey -}}
{{- end -}}
{{- end -}}
{{- with .Values.search -}}
{{- if .key }}{{ $_ := set $values "embeddings-key" .key }}{{ end -}}
{{- end -}}
{{- with .Values.secrets -}}
{{- if .masterKey }}{{ $_ := set $values "master-key" .masterKey }}{{ end -}}
{{- if .previousMasterKey }}{{ $_ := set $values "previous-master-key" .previousMasterKey }}{{ end -}}
{{- end -}}
{{- with .Values.operator -}}
{{- if and .enabled .token }}{{ $_ := set $values "operator-token" .token }}{{ end -}}
{{- end -}}
{{- with .Values.telemetry -}}
{{- if .otlpHeaders }}{{ $_ := set $values "otlp-headers" .otlpHeaders }}{{ end -}}
{{- end -}}
{{- $values | toYaml -}}
{{- end -}}

{{/* One variable that a Secret's key fills. */}}
{{- define "keepsake.secretVariable" -}}
- name: {{ .variable }}
  valueFrom:
    secretKeyRef:
      name: {{ .secret | quote }}
      key: {{ .key | quote }}
{{- end -}}

{{/* The variable of the operator's token. */}}
{{- define "keepsake.operatorVariable" -}}
{{- with .Values.operator -}}
{{- if .existingSecret -}}
{{- include "keepsake.secretVariable" (dict "variable" "KEEPSAKE_OPERATOR_TOKEN" "secret" .existingSecret "key" .existingSecretKeys.token) -}}
{{- else -}}
{{- include "keepsake.secretVariable" (dict "variable" "KEEPSAKE_OPERATOR_TOKEN" "secret" (include "keepsake.fullname" $) "key" "operator-token") -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Every secret of a serving process, as variables. */}}
{{- define "keepsake.secretVariables" -}}
{{- $own := include "keepsake.fullname" . -}}
{{- $variables := list -}}
{{- with .Values.index -}}
{{- if eq .kind "postgres" -}}
{{- if .existingSecret -}}
{{- $variables = append $variables (dict "variable" "KEEPSAKE_INDEX_URL" "secret" .existingSecret "key" .existingSecretKeys.url) -}}
{{- with .existingSecretKeys.jobsUrl -}}
{{- $variables = append $variables (dict "variable" "KEEPSAKE_INDEX_JOBS_URL" "secret" $.Values.index.existingSecret "key" .) -}}
{{- end -}}
{{- else -}}
{{- $variables = append $variables (dict "variable" "KEEPSAKE_INDEX_URL" "secret" $own "key" "index-url") -}}
{{- if .jobsUrl -}}
{{- $variables = append $variables (dict "variable" "KEEPSAKE_INDEX_JOBS_URL" "secret" $own "key" "index-jobs-url") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.blobs -}}
{{- if .existingSecret -}}
{{- $variables = append $variables (dict "variable" "KEEPSAKE_BLOBS_ACCESS_KEY_ID" "secret" .existingSecret "key" .existingSecretKeys.accessKeyId) -}}
{{- $variables = append $variables (dict "variable" "KEEPSAKE_BLOBS_SECRET_ACCESS_KEY" "secret" .existingSecret "key" .existingSecretKeys.secretAccessKey) -}}
{{- else if .accessKeyId -}}
{{- $variables = append $variables (dict "variable" "KEEPSAKE_BLOBS_ACCESS_KEY_ID" "secret" $own "key" "blobs-access-key-id") -}}
{{- $variables = append $variables (dict "variable" "KEEPSAKE_BLOBS_SECRET_ACCESS_KEY" "secret" $own "key" "blobs-secret-access-key") -}}
{{- end -}}
{{- end -}}
{{- with .Values.search -}}
{{- if .existingSecret -}}
{{- $variables = append $variables (dict "variable" "KEEPSAKE_SEARCH_EMBEDDINGS_KEY" "secret" .existingSecret "key" .existingSecretKeys.key) -}}
{{- else if .key -}}
{{- $variables = append $variables (dict "variable" "KEEPSAKE_SEARCH_EMBEDDINGS_KEY" "secret" $own "key" "embeddings-key") -}}
{{- end -}}
{{- end -}}
{{- with .Values.secrets -}}
{{- if .existingSecret -}}
{{- $variables = append $variables (dict "variable" "KEEPSAKE_SECRETS_MASTER_KEY" "secret" .existingSecret "key" .existingSecretKeys.masterKey) -}}
{{- with .existingSecretKeys.previousMasterKey -}}
{{- $variables = append $variables (dict "variable" "KEEPSAKE_SECRETS_PREVIOUS_MASTER_KEY" "secret" $.Values.secrets.existingSecret "key" .) -}}
{{- end -}}
{{- else -}}
{{- if .masterKey -}}
{{- $variables = append $variables (dict "variable" "KEEPSAKE_SECRETS_MASTER_KEY" "secret" $own "key" "master-key") -}}
{{- end -}}
{{- if .previousMasterKey -}}
{{- $variables = append $variables (dict "variable" "KEEPSAKE_SECRETS_PREVIOUS_MASTER_KEY" "secret" $own "key" "previous-master-key") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.telemetry -}}
{{- if .existingSecret -}}
{{- $variables = append $variables (dict "variable" "KEEPSAKE_TELEMETRY_OTLP_HEADERS" "secret" .existingSecret "key" .existingSecretKeys.otlpHeaders) -}}
{{- else if .otlpHeaders -}}
{{- $variables = append $variables (dict "variable" "KEEPSAKE_TELEMETRY_OTLP_HEADERS" "secret" $own "key" "otlp-headers") -}}
{{- end -}}
{{- end -}}
{{- range $variables }}
{{ include "keepsake.secretVariable" . }}
{{- end }}
{{- if .Values.operator.enabled }}
{{ include "keepsake.operatorVariable" . }}
{{- end }}
{{- end -}}

{{/* A value as TOML writes it; whole numbers of YAML are floats to Helm. */}}
{{- define "keepsake.toml" -}}
{{- if kindIs "map" . -}}
{{- $entries := list -}}
{{- range $key, $value := . -}}
{{- $entries = append $entries (printf "%s = %s" $key (include "keepsake.toml" $value)) -}}
{{- end -}}
{ {{- join ", " $entries -}} }
{{- else if kindIs "slice" . -}}
{{- $entries := list -}}
{{- range . }}{{ $entries = append $entries (include "keepsake.toml" .) }}{{ end -}}
[{{- join ", " $entries -}}]
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- int64 . -}}
{{- else -}}
{{- toJson . -}}
{{- end -}}
{{- end -}}

{{/* keepsake.toml: what the chart knows, then `config`. No secret is in it. */}}
{{- define "keepsake.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $server := merge (dict "listen" (printf "%s:%v" .Values.listenHost .Values.gateway.port)) (default dict $config.server) -}}
{{- $_ := set $config "server" $server -}}
{{- if .Values.operator.enabled -}}
{{- $_ := set $config "operator" (dict "listen" (printf "%s:%v" .Values.listenHost .Values.operator.port)) -}}
{{- end -}}
{{- $index := default dict $config.index -}}
{{- if eq .Values.index.kind "sqlite" -}}
{{- $_ := set $index "url" (default "sqlite:///var/lib/keepsake/index.db" .Values.index.url) -}}
{{- end -}}
{{- $_ := set $config "index" $index -}}
{{- $blobs := dict -}}
{{- with .Values.blobs -}}
{{- if .url }}{{ $_ := set $blobs "url" .url }}{{ end -}}
{{- if .pathStyle }}{{ $_ := set $blobs "path_style" true }}{{ end -}}
{{- if .endpoint }}{{ $_ := set $blobs "endpoint" .endpoint }}{{ end -}}
{{- if .region }}{{ $_ := set $blobs "region" .region }}{{ end -}}
{{- if .deletionDelaySeconds }}{{ $_ := set $blobs "deletion_delay_seconds" (int64 .deletionDelaySeconds) }}{{ end -}}
{{- if .sseKmsKeyId }}{{ $_ := set $blobs "sse_kms_key_id" .sseKmsKeyId }}{{ end -}}
{{- if .ca.configMap }}{{ $_ := set $blobs "ca_file" "/etc/keepsake-ca/ca.crt" }}{{ end -}}
{{- end -}}
{{- $_ := set $config "blobs" $blobs -}}
{{- with .Values.search -}}
{{- /* YAML reads an unquoted `off` as false. */ -}}
{{- $search := dict "meaning" (ternary .meaning "off" (kindIs "string" .meaning)) -}}
{{- if eq $search.meaning "endpoint" -}}
{{- $embeddings := dict "url" .embeddings.url "model" .embeddings.model "dimensions" (int64 .embeddings.dimensions) -}}
{{- with .embeddings.queryPrefix }}{{ $_ := set $embeddings "query_prefix" . }}{{ end -}}
{{- with .embeddings.documentPrefix }}{{ $_ := set $embeddings "document_prefix" . }}{{ end -}}
{{- $_ := set $search "embeddings" $embeddings -}}
{{- end -}}
{{- $_ := set $config "search" $search -}}
{{- end -}}
{{- if .Values.serviceMonitor.enabled -}}
{{- /* Prometheus is let in by the network policy: the token may do anything. */ -}}
{{- $_ := set $config "telemetry" (merge (dict "metrics_without_token" true) (default dict $config.telemetry)) -}}
{{- end -}}
{{- range $section, $keys := $config }}
{{- if $keys }}
[{{ $section }}]
{{- range $key, $value := $keys }}
{{ $key }} = {{ include "keepsake.toml" $value }}
{{- end }}
{{ end }}
{{- end }}
{{- end -}}

{{/* The port of a URL: url, default. */}}
{{- define "keepsake.portOf" -}}
{{- $authority := .url | splitList "://" | last | splitList "/" | first | splitList "@" | last -}}
{{- regexFind ":[0-9]+$" $authority | trimPrefix ":" | default .default -}}
{{- end -}}

{{/* A rule of egress: ports, and the destination's values (to, ports). */}}
{{- define "keepsake.egressRule" -}}
{{- $ports := list -}}
{{- range default .ports .destination.ports }}{{ $ports = append $ports (int64 .) }}{{ end -}}
- ports:
    {{- range uniq $ports }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  {{- with .destination.to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* DNS and the database: all that a migration connects to. */}}
{{- define "keepsake.migrationEgress" -}}
{{- $egress := .Values.networkPolicy.egress -}}
- ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
  {{- with $egress.dns.to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- if eq .Values.index.kind "postgres" }}
{{- $ports := list -}}
{{- range compact (list .Values.index.url .Values.index.migrateUrl .Values.index.jobsUrl) -}}
{{- $ports = append $ports (include "keepsake.portOf" (dict "url" (splitList "?" . | first) "default" "5432")) -}}
{{- end }}
{{ include "keepsake.egressRule" (dict "ports" (default (list 5432) $ports) "destination" $egress.database) }}
{{- end }}
{{- with .Values.networkPolicy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What pods may connect to: one rule for each destination that is in use. */}}
{{- define "keepsake.egress" -}}
{{- $egress := .Values.networkPolicy.egress -}}
{{- include "keepsake.migrationEgress" . }}
{{- if hasPrefix "s3://" (default "" .Values.blobs.url) }}
{{- $ports := list "443" -}}
{{- with .Values.blobs.endpoint -}}
{{- $ports = list (include "keepsake.portOf" (dict "url" . "default" (ternary "443" "80" (hasPrefix "https://" .)))) -}}
{{- end }}
{{ include "keepsake.egressRule" (dict "ports" $ports "destination" $egress.blobs) }}
{{- end }}
{{- with .Values.search -}}
{{- if eq (toString .meaning) "endpoint" -}}
{{- $port := include "keepsake.portOf" (dict "url" .embeddings.url "default" (ternary "443" "80" (hasPrefix "https://" .embeddings.url))) }}
{{ include "keepsake.egressRule" (dict "ports" (list $port) "destination" $egress.embeddings) }}
{{- end -}}
{{- end }}
{{- $issuers := list -}}
{{- range dig "auth" "issuers" list .Values.config -}}
{{- $urls := list -}}
{{- if not .key_file }}{{ $urls = append $urls (default .issuer .jwks_url) }}{{ end -}}
{{- if .console }}{{ $urls = append $urls .issuer }}{{ end -}}
{{- range $urls -}}
{{- $issuers = append $issuers (include "keepsake.portOf" (dict "url" . "default" (ternary "80" "443" (hasPrefix "http://" .)))) -}}
{{- end -}}
{{- end }}
{{- if $issuers }}
{{ include "keepsake.egressRule" (dict "ports" $issuers "destination" $egress.issuers) }}
{{- end }}
{{- with dig "telemetry" "otlp_endpoint" "" .Values.config }}
{{- $port := include "keepsake.portOf" (dict "url" . "default" (ternary "443" "80" (hasPrefix "https://" .))) }}
{{ include "keepsake.egressRule" (dict "ports" (list $port) "destination" $egress.telemetry) }}
{{- end }}
{{- end -}}

{{/*
The memory limit of a serving process: the sum that docs/operations.md (Memory)
states, a sixth more, rounded up to 64 MiB.
*/}}
{{- define "keepsake.memoryLimit" -}}
{{- $config := .Values.config -}}
{{- $caches := add (dig "cache" "blob_bytes" 268435456 $config | int64) (dig "cache" "search_bytes" 268435456 $config | int64) -}}
{{- $requests := dig "server" "max_request_memory_bytes" 201326592 $config | int64 -}}
{{- $connections := mul 36864 (dig "server" "max_connections" 2048 $config | int64) -}}
{{- $bound := add $caches $requests $connections 100663296 -}}
{{- $unit := 67108864 -}}
{{- $units := div (add (div (mul $bound 7) 6) (sub $unit 1)) $unit -}}
{{- printf "%dMi" (mul $units 64) -}}
{{- end -}}

{{/* Resources of a serving process, with the derived limit unless one is set: root, resources. */}}
{{- define "keepsake.resources" -}}
{{- $resources := deepCopy .resources -}}
{{- $limits := default dict $resources.limits -}}
{{- if not $limits.memory -}}
{{- $limits = set $limits "memory" (include "keepsake.memoryLimit" .root) -}}
{{- end -}}
{{- set $resources "limits" $limits | toYaml -}}
{{- end -}}

{{/* A probe with its overrides: default, override. Another handler replaces httpGet. */}}
{{- define "keepsake.probe" -}}
{{- $probe := deepCopy .default -}}
{{- $override := default dict .override -}}
{{- range list "exec" "grpc" "httpGet" "tcpSocket" -}}
{{- if hasKey $override . }}{{ $probe = omit $probe "httpGet" }}{{ end -}}
{{- end -}}
{{- mergeOverwrite $probe (deepCopy $override) | toYaml -}}
{{- end -}}

{{/* Variables of every Keepsake container besides its own: a list, or nothing. */}}
{{- define "keepsake.envFrom" -}}
{{- with .Values.extraEnvFrom -}}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* The autoscaler of a Deployment: root, component, autoscaling (its values). */}}
{{- define "keepsake.autoscaler" -}}
{{- $name := printf "%s-%s" (include "keepsake.fullname" .root) .component -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ $name | quote }}
  labels:
    {{- include "keepsake.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ $name | quote }}
  minReplicas: {{ int64 .autoscaling.minReplicas }}
  maxReplicas: {{ int64 .autoscaling.maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ int64 .autoscaling.targetCPUUtilizationPercentage }}
    {{- with .autoscaling.metrics }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .autoscaling.behavior }}
  behavior:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* A command in a gateway of this release, up to the arguments of keepsake. */}}
{{- define "keepsake.exec" -}}
kubectl -n {{ .Release.Namespace }} exec deploy/{{ include "keepsake.fullname" . }}-gateway -c keepsake -- keepsake
{{- end -}}
