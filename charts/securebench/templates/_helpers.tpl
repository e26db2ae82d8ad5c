{{- define "securebench.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "securebench.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "securebench.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "securebench.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "securebench.selector" -}}
app.kubernetes.io/name: {{ include "securebench.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- /* Where the operator and its standby go: apart if the volume allows it, else to the node that has the volume. */ -}}
{{- define "securebench.affinity" -}}
{{- $term := printf "topologyKey: kubernetes.io/hostname\nlabelSelector:\n  matchLabels:\n%s" (include "securebench.selector" . | indent 4) -}}
{{- if eq .Values.persistence.accessMode "ReadWriteMany" -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm: {{- $term | nindent 8 }}
{{- else -}}
podAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    - {{ $term | indent 6 | trim }}
{{- end -}}
{{- end -}}

{{- /* The names of the operator's Pods, as a list. */ -}}
{{- define "securebench.operatorPods" -}}
{{- $root := . -}}
{{- $names := list -}}
{{- range $number := until (int .Values.operator.replicas) -}}
{{- $names = append $names (printf "%s-%d" (include "securebench.fullname" $root) $number) -}}
{{- end -}}
[{{ join ", " $names }}]
{{- end -}}

{{- /* One name for all releases: of operators that are started in one namespace by mistake one works. */ -}}
{{- define "securebench.lease" -}}
securebench-operator
{{- end -}}

{{- define "securebench.labels" -}}
{{ include "securebench.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "securebench.testName" -}}
{{- printf "%s-test" (include "securebench.fullname" .) -}}
{{- end -}}

{{- /* Helm waits for each hook before it makes the next one, so the Pod that watches comes after the run. */ -}}
{{- define "securebench.testMetadata" -}}
name: {{ include "securebench.testName" .root }}
namespace: {{ .root.Release.Namespace }}
labels:
  app.kubernetes.io/name: {{ include "securebench.name" .root }}
  app.kubernetes.io/instance: {{ .root.Release.Name }}
  app.kubernetes.io/component: test
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
annotations:
  helm.sh/hook: test
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
{{- end -}}

{{- define "securebench.image" -}}
{{- $image := .root.Values.image -}}
{{- $tag := default .root.Chart.AppVersion $image.tag -}}
{{- $name := printf "securebench-%s:%s" .part $tag -}}
{{- if $image.registry -}}
{{- $name = printf "%s/%s" (trimSuffix "/" $image.registry) $name -}}
{{- end -}}
{{- default $name (index $image .part) -}}
{{- end -}}

{{- define "securebench.claim" -}}
{{- default (printf "%s-results" (include "securebench.fullname" .)) .Values.persistence.existingClaim -}}
{{- end -}}

{{- define "securebench.account" -}}
{{- default (include "securebench.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "securebench.runsAccount" -}}
{{- printf "%s-runs" (include "securebench.fullname" .) -}}
{{- end -}}

{{- define "securebench.viewers" -}}
{{- printf "%s-viewers" (include "securebench.fullname" .) -}}
{{- end -}}

{{- define "securebench.viewersSelector" -}}
app.kubernetes.io/name: {{ include "securebench.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: viewers
{{- end -}}

{{- define "securebench.viewersLabels" -}}
{{ include "securebench.viewersSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- /* What admission policies look at to know who requested a run. */ -}}
{{- define "securebench.requestersMatch" -}}
namespaceSelector:
  matchLabels:
    kubernetes.io/metadata.name: {{ .Release.Namespace }}
resourceRules:
  - apiGroups: [securebench.dev]
    apiVersions: ["*"]
    operations: [CREATE, UPDATE]
    resources: [benchmarkruns, benchmarksuites]
{{- end -}}

{{- define "securebench.requestersVariables" -}}
- name: caller
  expression: request.userInfo.username
- name: isOperator
  expression: variables.caller == "system:serviceaccount:{{ .root.Release.Namespace }}:{{ include "securebench.account" .root }}"
- name: named
  expression: object.metadata.?annotations["{{ .key }}"].orValue("")
- name: before
  expression: 'request.operation == "CREATE" ? "" : oldObject.metadata.?annotations["{{ .key }}"].orValue("")'
# Whoever creates one requests runs, and so does whoever changes what a suite runs or has it run again.
- name: requests
  expression: >-
    request.operation == "CREATE" || request.resource.resource == "benchmarksuites" && (object.spec != oldObject.spec
    || object.metadata.?annotations["securebench.dev/rerun"] != oldObject.metadata.?annotations["securebench.dev/rerun"])
{{- end -}}

{{- define "securebench.settings" -}}
podImage: {{ include "securebench.image" (dict "root" . "part" "pod") | quote }}
gatewayImage: {{ include "securebench.image" (dict "root" . "part" "operator") | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - {{ .name | quote }}
  {{- end }}
{{- end }}
volumeClaim: {{ include "securebench.claim" . }}
runsAccount: {{ include "securebench.runsAccount" . }}
accessMode: {{ .Values.persistence.accessMode }}
healthPort: {{ .Values.probes.port }}
healthMaxAgeSeconds: {{ .Values.probes.maxAgeSeconds }}
trustsRequesters: {{ .Values.requesters.record }}
metricsPort: {{ ternary .Values.metrics.port 0 .Values.metrics.enabled }}
{{ toYaml .Values.settings }}
{{- end -}}
