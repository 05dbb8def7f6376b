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
app.kubernetes.io/name: {{ include "keepsake.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "keepsake.labels" -}}
{{ include "keepsake.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
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
      name: {{ .secret }}
      key: {{ .key }}
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

{{/* TCP ports that pods connect to, each once. */}}
{{- define "keepsake.egressPorts" -}}
{{- $ports := list -}}
{{- range .Values.networkPolicy.egressPorts }}{{ $ports = append $ports (int64 .) }}{{ end -}}
{{- range list .Values.index.url .Values.index.migrateUrl .Values.index.jobsUrl -}}
{{- if hasPrefix "postgres" . -}}
{{- $port := regexFind ":[0-9]+/[^/@]*$" (splitList "?" . | first) -}}
{{- $ports = append $ports (default "5432" (regexFind "[0-9]+" $port) | int64) -}}
{{- end -}}
{{- end -}}
{{- range list .Values.blobs.endpoint (dig "telemetry" "otlp_endpoint" "" .Values.config) -}}
{{- if . -}}
{{- $port := regexFind ":[0-9]+$" (urlParse .).host -}}
{{- $default := ternary "443" "80" (hasPrefix "https://" .) -}}
{{- $ports = append $ports (default $default (trimPrefix ":" $port) | int64) -}}
{{- end -}}
{{- end -}}
{{- range uniq $ports }}
- {protocol: TCP, port: {{ . }}}
{{- end }}
{{- end -}}

{{/* What pods may connect to: names, then those ports anywhere. */}}
{{- define "keepsake.egress" -}}
- ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
- ports:
    {{- include "keepsake.egressPorts" . | trim | nindent 4 }}
{{- with .Values.networkPolicy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end -}}
