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

{{- define "securebench.labels" -}}
{{ include "securebench.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
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

{{- define "securebench.settings" -}}
podImage: {{ include "securebench.image" (dict "root" . "part" "pod") | quote }}
gatewayImage: {{ include "securebench.image" (dict "root" . "part" "operator") | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
volumeClaim: {{ include "securebench.claim" . }}
runsAccount: {{ include "securebench.runsAccount" . }}
accessMode: {{ .Values.persistence.accessMode }}
metricsPort: {{ ternary .Values.metrics.port 0 .Values.metrics.enabled }}
{{ toYaml .Values.settings }}
{{- end -}}
