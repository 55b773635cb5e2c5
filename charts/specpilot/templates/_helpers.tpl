{{- define "specpilot.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* Of objects without a namespace: two releases of one name may be in two namespaces. */}}
{{- define "specpilot.clusterName" -}}
{{- printf "%s.%s" (include "specpilot.fullname" .) .Release.Namespace -}}
{{- end }}

{{- define "specpilot.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "specpilot.fullname" .) -}}
{{- else -}}
{{- required "serviceAccount.name is required when serviceAccount.create is false: set it" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{- define "specpilot.selectorLabels" -}}
app.kubernetes.io/name: specpilot-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "specpilot.labels" -}}
{{ include "specpilot.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: specpilot
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "specpilot.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end }}

{{/* The operator's configuration file: config of the values, and what the chart knows itself. */}}
{{- define "specpilot.config" -}}
{{- $endpoints := list -}}
{{- range .Values.prometheus -}}
{{- $endpoint := dict "name" .name "url" .url "insecureSkipVerify" (.insecureSkipVerify | default false) -}}
{{- if and .tokenSecret .tokenFile }}{{ fail (printf "prometheus %s has tokenSecret and tokenFile: remove one" .name) }}{{ end -}}
{{- if and .caSecret .caConfigMap }}{{ fail (printf "prometheus %s has caSecret and caConfigMap: remove one" .name) }}{{ end -}}
{{- if .tokenSecret }}{{ $_ := set $endpoint "tokenFile" (printf "/etc/specpilot-prometheus/%s/token" .name) }}{{ end -}}
{{- if .tokenFile }}{{ $_ := set $endpoint "tokenFile" .tokenFile }}{{ end -}}
{{- if or .caSecret .caConfigMap }}{{ $_ := set $endpoint "caFile" (printf "/etc/specpilot-prometheus/%s/ca.crt" .name) }}{{ end -}}
{{- with .headers }}{{ $_ := set $endpoint "headers" . }}{{ end -}}
{{- if .headerSecrets }}
{{- $files := dict -}}
{{- $folder := printf "/etc/specpilot-prometheus/%s/headers" .name -}}
{{- range $header, $_ := .headerSecrets }}{{ $_ := set $files $header (printf "%s/%s" $folder $header) }}{{ end -}}
{{- $_ := set $endpoint "headerFiles" $files -}}
{{- end -}}
{{- with .timeout }}{{ $_ := set $endpoint "timeout" . }}{{ end -}}
{{- with .window }}{{ $_ := set $endpoint "window" . }}{{ end -}}
{{- $endpoints = append $endpoints $endpoint -}}
{{- end -}}
{{- $known := dict
  "watchNamespaces" .Values.watchNamespaces
  "engineImage" (.Values.engineImage | default (include "specpilot.image" .))
  "pullPolicy" .Values.image.pullPolicy
  "prometheus" $endpoints
  "ports" (dict "metrics" 8080 "health" 8081)
  "lease" (merge (dict "name" (include "specpilot.fullname" .)) .Values.config.lease)
-}}
{{- merge $known .Values.config | toYaml -}}
{{- end }}

{{/* What the operator may do where it serves. It writes by server-side apply, which needs create and patch. */}}
{{- define "specpilot.rules" -}}
- apiGroups: [specpilot.io]
  resources: [speculativedeployments]
  verbs: [get, list, watch]
- apiGroups: [specpilot.io]
  resources: [speculativedeployments/status, costprofiles/status]
  verbs: [patch]
# Owner references that hold up the owner's deletion need this where the API server checks them (OpenShift).
- apiGroups: [specpilot.io]
  resources: [speculativedeployments/finalizers]
  verbs: [update]
# A profile outlives its deployment: people delete it.
- apiGroups: [specpilot.io]
  resources: [costprofiles]
  verbs: [get, list, watch, create, patch]
- apiGroups: [apps]
  resources: [deployments]
  verbs: &children [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: *children
- apiGroups: [""]
  resources: [services, serviceaccounts, configmaps]
  verbs: *children
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: *children
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: *children
{{- if .Values.config.networkPolicy }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: *children
{{- end }}
# An annotation makes the kubelet sync a new schedule at once.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end }}

{{/* Tokens and certificates of the Prometheus endpoints, for one projected volume; empty when there are none. */}}
{{- define "specpilot.prometheusSources" -}}
{{- range $endpoint := .Values.prometheus -}}
{{- with .tokenSecret }}
- secret:
    name: {{ .name }}
    items:
      - key: {{ .key }}
        path: {{ $endpoint.name }}/token
{{- end }}
{{- range $header, $from := .headerSecrets }}
- secret:
    name: {{ $from.name }}
    items:
      - key: {{ $from.key }}
        path: {{ $endpoint.name }}/headers/{{ $header }}
{{- end }}
{{- with .caSecret }}
- secret:
    name: {{ .name }}
    items:
      - key: {{ .key }}
        path: {{ $endpoint.name }}/ca.crt
{{- end }}
{{- with .caConfigMap }}
- configMap:
    name: {{ .name }}
    items:
      - key: {{ .key }}
        path: {{ $endpoint.name }}/ca.crt
{{- end }}
{{- end }}
{{- end }}
