{{- define "jetspec.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* Labels that never change: (dict "root" $ "component" "engine"). */}}
{{- define "jetspec.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "jetspec.labels" -}}
{{ include "jetspec.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "jetspec.image" -}}
{{ .root.Values.imageRegistry }}{{ .name }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{- define "jetspec.secret" -}}
{{ .Values.auth.existingSecret | default (printf "%s-keys" (include "jetspec.fullname" .)) }}
{{- end }}

{{- define "jetspec.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "jetspec.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Where a pod may run; .values is the component's. */}}
{{- define "jetspec.placement" -}}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* "yes" where objects of the Prometheus Operator are wanted. */}}
{{- define "jetspec.monitoring" -}}
{{- $has := .Capabilities.APIVersions.Has "monitoring.coreos.com/v1" -}}
{{- if or (eq .Values.monitoring.enabled "always") (and (eq .Values.monitoring.enabled "auto") $has) }}yes{{ end }}
{{- end }}

{{/* Flags of the engine's entrypoint, which are those of `jetspec serve`. */}}
{{- define "jetspec.engineArgs" -}}
{{- with .Values.engine -}}
- --host=0.0.0.0
- --port=30000
- {{ printf "--model-path=%s" .model | quote }}
- {{ printf "--speculative-draft-model-path=%s" .head | quote }}
{{- if gt (int .gpus) 1 }}
- --tp-size={{ .gpus }}
{{- end }}
{{- range .args }}
- {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* The controller's whole configuration; docs/controller.md. */}}
{{- define "jetspec.controllerConfig" -}}
{{- $c := .Values.controller -}}
{{- $control := dict "admin_key" (dict "file" "/run/secrets/jetspec/admin-key") -}}
{{- if .Values.auth.clientKey }}{{ $_ := set $control "api_key" (dict "file" "/run/secrets/jetspec/api-key") }}{{ end -}}
{{- $own := dict
  "api" (dict "host" "0.0.0.0" "port" 30900 "token_file" "/run/secrets/jetspec/controller-tokens")
  "discovery" (dict "kubernetes" (dict "service" (printf "%s-engine" (include "jetspec.fullname" .)) "namespace" .Release.Namespace "port" "http"))
  "control" $control
  "state" (dict "path" "/var/lib/jetspec-controller/state.sqlite")
  "policy" ($c.policy | default dict)
  "target_policies" ($c.targetPolicies | default dict)
  "on_shutdown" $c.onShutdown -}}
{{- if $c.prometheus.url }}
{{- /* The chart's monitors call an engine by its pod; its address is a label of its own. */ -}}
{{- $_ := set $own "prometheus" (dict "url" $c.prometheus.url "selector" $c.prometheus.selector "instance_label" "address") }}
{{- end -}}
{{- toYaml (mergeOverwrite $own (deepCopy ($c.extraConfig | default dict))) -}}
{{- end }}
