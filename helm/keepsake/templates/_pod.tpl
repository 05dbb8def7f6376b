{{/*
The pod template of a serving process: root, component, role, pod (its values),
probePort (the name of the port that answers probes), pause (seconds before
SIGTERM).
*/}}
{{- define "keepsake.pod" -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
metadata:
  labels:
    {{- include "keepsake.selector" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    {{- if $values.operator.enabled }}
    # On gateways and workers, for the operator's Service.
    keepsake/listener: operator
    {{- end }}
    {{- with include "keepsake.podLabels" (dict "root" $root "own" .pod.podLabels) }}
    {{- . | nindent 4 }}
    {{- end }}
  annotations:
    # A process reads these at its start: a change creates new pods.
    checksum/config: {{ include "keepsake.config" $root | sha256sum }}
    checksum/secrets: {{ include "keepsake.inlineSecrets" $root | sha256sum }}
    {{- with include "keepsake.podAnnotations" (dict "root" $root "own" .pod.podAnnotations) }}
    {{- . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "keepsake.serviceAccountName" $root | quote }}
  automountServiceAccountToken: false
  # Otherwise variables of other Services look like Keepsake's.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "keepsake.gracePeriod" . }}
  securityContext:
    {{- toYaml $values.podSecurityContext | nindent 4 }}
  {{- with $values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .pod.priorityClassName }}
  priorityClassName: {{ quote . }}
  {{- end }}
  {{- with .pod.initContainers }}
  initContainers:
    {{- tpl (toYaml .) $root | nindent 4 }}
  {{- end }}
  containers:
    - name: keepsake
      image: {{ include "keepsake.image" $root | quote }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      args: [serve, --role, {{ .role }}, --config, /etc/keepsake/keepsake.toml]
      {{- $secrets := include "keepsake.secretVariables" $root | trim }}
      {{- if or $secrets $values.search.modelPath $values.extraEnv }}
      env:
        {{- with $values.search.modelPath }}
        # The image sets this variable, which overrides the file.
        - {name: KEEPSAKE_SEARCH_MODEL_PATH, value: {{ quote . }}}
        {{- end }}
        {{- with $secrets }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with $values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
      {{- with include "keepsake.envFrom" $root }}
      {{- . | nindent 6 }}
      {{- end }}
      ports:
        {{- if eq .component "gateway" }}
        - {name: http, containerPort: {{ $values.gateway.port }}, protocol: TCP}
        {{- end }}
        {{- if $values.operator.enabled }}
        - {name: operator, containerPort: {{ $values.operator.port }}, protocol: TCP}
        {{- end }}
      {{- $live := dict "path" "/livez" "port" .probePort }}
      {{- $ready := dict "path" "/readyz" "port" .probePort }}
      startupProbe:
        {{- include "keepsake.probe" (dict "override" .pod.startupProbe "default" (dict "httpGet" $live "periodSeconds" 2 "timeoutSeconds" 3 "failureThreshold" 60)) | nindent 8 }}
      readinessProbe:
        {{- include "keepsake.probe" (dict "override" .pod.readinessProbe "default" (dict "httpGet" $ready "periodSeconds" 5 "timeoutSeconds" 5 "failureThreshold" 2)) | nindent 8 }}
      livenessProbe:
        {{- include "keepsake.probe" (dict "override" .pod.livenessProbe "default" (dict "httpGet" $live "periodSeconds" 10 "timeoutSeconds" 5 "failureThreshold" 6)) | nindent 8 }}
      {{- if .pause }}
      lifecycle:
        preStop:
          sleep: {seconds: {{ .pause }}}
      {{- end }}
      resources:
        {{- include "keepsake.resources" (dict "root" $root "resources" .pod.resources) | nindent 8 }}
      securityContext:
        {{- toYaml $values.securityContext | nindent 8 }}
      volumeMounts:
        - {name: config, mountPath: /etc/keepsake, readOnly: true}
        {{- if $values.blobs.ca.configMap }}
        - {name: blobs-ca, mountPath: /etc/keepsake-ca, readOnly: true}
        {{- end }}
        {{- if include "keepsake.hasVolume" $root }}
        - {name: data, mountPath: /var/lib/keepsake}
        {{- end }}
        {{- with $values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- with .pod.extraContainers }}
    {{- tpl (toYaml .) $root | nindent 4 }}
    {{- end }}
  volumes:
    - name: config
      configMap: {name: {{ include "keepsake.fullname" $root | quote }}}
    {{- with $values.blobs.ca }}
    {{- if .configMap }}
    - name: blobs-ca
      configMap:
        name: {{ quote .configMap }}
        items: [{key: {{ quote .key }}, path: ca.crt}]
    {{- end }}
    {{- end }}
    {{- if include "keepsake.hasVolume" $root }}
    - name: data
      persistentVolumeClaim:
        claimName: {{ default (include "keepsake.fullname" $root) $values.persistence.existingClaim | quote }}
    {{- end }}
    {{- with $values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  topologySpreadConstraints:
    {{- if .pod.topologySpreadConstraints }}
    {{- toYaml .pod.topologySpreadConstraints | nindent 4 }}
    {{- else }}
    {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - topologyKey: {{ . }}
      maxSkew: 1
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "keepsake.selector" $root | nindent 10 }}
          app.kubernetes.io/component: {{ $.component }}
    {{- end }}
    {{- end }}
  {{- with .pod.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .pod.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .pod.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
