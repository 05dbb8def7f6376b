{{/* Refuses values that are good one by one and wrong together. */}}
{{- define "keepsake.validate" -}}
{{- $name := include "keepsake.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "a Service cannot be named %s, after the release: set fullnameOverride to a name that begins with a letter and has only letters, digits and hyphens" $name) -}}
{{- end -}}
{{- $index := .Values.index -}}
{{- $blobs := .Values.blobs -}}
{{- if eq $index.kind "sqlite" -}}
{{- if .Values.worker.enabled -}}
{{- fail "index.kind sqlite has one process, which serves and runs the jobs: set worker.enabled to false" -}}
{{- end -}}
{{- if .Values.gateway.autoscaling.enabled -}}
{{- fail "index.kind sqlite has one process: set gateway.autoscaling.enabled to false" -}}
{{- end -}}
{{- if gt (int .Values.gateway.replicas) 1 -}}
{{- fail "index.kind sqlite has one process: set gateway.replicas to 1" -}}
{{- end -}}
{{- if and .Values.gateway.strategy (ne (toString .Values.gateway.strategy.type) "Recreate") -}}
{{- fail "index.kind sqlite has one process: gateway.strategy.type must be Recreate" -}}
{{- end -}}
{{- if or $index.existingSecret $index.migrateUrl $index.jobsUrl -}}
{{- fail "index.existingSecret, index.migrateUrl and index.jobsUrl are only for index.kind postgres" -}}
{{- end -}}
{{- if and $index.url (not (hasPrefix "sqlite:///var/lib/keepsake/" $index.url)) -}}
{{- fail "index.url must be below sqlite:///var/lib/keepsake/, where the volume is" -}}
{{- end -}}
{{- else -}}
{{- if and $index.url $index.existingSecret -}}
{{- fail "index.url and index.existingSecret are both set: the URL comes from one of them" -}}
{{- end -}}
{{- if not (or $index.url $index.existingSecret) -}}
{{- fail "set index.url, or index.existingSecret to the name of a Secret that holds it" -}}
{{- end -}}
{{- if and $index.url (not (regexMatch "^postgres(ql)?://" $index.url)) -}}
{{- fail "index.url must begin with postgres://; a sqlite:// one needs index.kind sqlite" -}}
{{- end -}}
{{- if and $index.existingSecret (or $index.migrateUrl $index.jobsUrl) -}}
{{- fail "index.migrateUrl and index.jobsUrl are set beside index.existingSecret: name their keys in index.existingSecretKeys" -}}
{{- end -}}
{{- end -}}
{{- if not (hasPrefix "s3://" (default "" $blobs.url)) -}}
{{- range list "endpoint" "region" "pathStyle" "sseKmsKeyId" "accessKeyId" "secretAccessKey" "existingSecret" -}}
{{- if get $blobs . -}}
{{- fail (printf "blobs.%s is for an object store, but blobs.url does not name one: set it to s3://bucket" .) -}}
{{- end -}}
{{- end -}}
{{- if $blobs.ca.configMap -}}
{{- fail "blobs.ca is for an object store, but blobs.url does not name one: set it to s3://bucket" -}}
{{- end -}}
{{- end -}}
{{- if ne (empty $blobs.accessKeyId) (empty $blobs.secretAccessKey) -}}
{{- fail "blobs.accessKeyId and blobs.secretAccessKey belong together" -}}
{{- end -}}
{{- if and $blobs.accessKeyId $blobs.existingSecret -}}
{{- fail "blobs.accessKeyId and blobs.existingSecret are both set: the credentials come from one of them" -}}
{{- end -}}
{{- with .Values.search -}}
{{- if eq (toString .meaning) "endpoint" -}}
{{- if not (and .embeddings.url .embeddings.model .embeddings.dimensions) -}}
{{- fail "search.meaning endpoint needs search.embeddings.url, model and dimensions" -}}
{{- end -}}
{{- else if or .embeddings.url .key .existingSecret -}}
{{- fail "search.embeddings.url, search.key and search.existingSecret are only for search.meaning endpoint" -}}
{{- end -}}
{{- if and .key .existingSecret -}}
{{- fail "search.key and search.existingSecret are both set: the key comes from one of them" -}}
{{- end -}}
{{- end -}}
{{- with .Values.secrets -}}
{{- if and .existingSecret (or .masterKey .previousMasterKey) -}}
{{- fail "secrets.masterKey and secrets.existingSecret are both set: the key comes from one of them" -}}
{{- end -}}
{{- if and .previousMasterKey (not .masterKey) -}}
{{- fail "secrets.previousMasterKey needs secrets.masterKey, which replaces it" -}}
{{- end -}}
{{- end -}}
{{- with .Values.telemetry -}}
{{- if and .otlpHeaders .existingSecret -}}
{{- fail "telemetry.otlpHeaders and telemetry.existingSecret are both set: the headers come from one of them" -}}
{{- end -}}
{{- if and (or .otlpHeaders .existingSecret) (not (dig "telemetry" "otlp_endpoint" "" $.Values.config)) -}}
{{- fail "telemetry.otlpHeaders needs config.telemetry.otlp_endpoint" -}}
{{- end -}}
{{- end -}}
{{- with .Values.operator -}}
{{- if and .token .existingSecret -}}
{{- fail "operator.token and operator.existingSecret are both set: the token comes from one of them" -}}
{{- end -}}
{{- if and .enabled (not (or .token .existingSecret)) -}}
{{- fail "set operator.token (`openssl rand -hex 32`) or operator.existingSecret, or operator.enabled to false" -}}
{{- end -}}
{{- if and .enabled (eq (int .port) (int $.Values.gateway.port)) -}}
{{- fail "operator.port and gateway.port must differ" -}}
{{- end -}}
{{- if and (not .enabled) $.Values.worker.enabled -}}
{{- fail "worker.enabled needs operator.enabled: a worker is probed on the operator's port" -}}
{{- end -}}
{{- if and (not .enabled) $.Values.serviceMonitor.enabled -}}
{{- fail "serviceMonitor.enabled needs operator.enabled: the metrics are on the operator's port" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled .Values.networkPolicy.enabled (not .Values.networkPolicy.operatorFrom) -}}
{{- fail "serviceMonitor.enabled beside networkPolicy.enabled needs networkPolicy.operatorFrom: the peers that Prometheus runs as" -}}
{{- end -}}
{{- with .Values.ingress -}}
{{- if and .enabled (not .hosts) -}}
{{- fail "ingress.enabled needs ingress.hosts" -}}
{{- end -}}
{{- if and .enabled .tls.enabled (not .tls.secretName) -}}
{{- fail "ingress.tls needs a secretName; with TLS ended elsewhere set ingress.tls.enabled to false" -}}
{{- end -}}
{{- end -}}
{{- with .Values.httpRoute -}}
{{- if and .enabled (not .parentRefs) -}}
{{- fail "httpRoute.enabled needs httpRoute.parentRefs: the Gateway that the route belongs to" -}}
{{- end -}}
{{- end -}}
{{- range $component := list "gateway" "worker" -}}
{{- with (get $.Values $component).autoscaling -}}
{{- if and .enabled (lt (int .maxReplicas) (int .minReplicas)) -}}
{{- fail (printf "%s.autoscaling.maxReplicas is below minReplicas" $component) -}}
{{- end -}}
{{- end -}}
{{- range $label := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" -}}
{{- range list $.Values.commonLabels $.Values.podLabels (get $.Values $component).labels (get $.Values $component).podLabels -}}
{{- if hasKey (default dict .) $label -}}
{{- fail (printf "the chart sets the label %s itself: remove it from the labels in the values" $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
