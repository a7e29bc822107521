{{/* Names and labels of everything here. */}}
{{- define "gdr.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "gdr.selector" -}}
app.kubernetes.io/name: gitea-dynamic-runner
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "gdr.labels" -}}
{{ include "gdr.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{/* What the controller puts on every Pod of a job. */}}
{{- define "gdr.executors" -}}
app.kubernetes.io/name: gitea-dynamic-runner
app.kubernetes.io/component: executor
{{- end }}

{{- define "gdr.controllerId" -}}
{{- .Values.identity.controllerId | default (printf "spiffe://%s/ns/%s/sa/%s" .Values.identity.trustDomain .Release.Namespace (include "gdr.name" .)) -}}
{{- end }}

{{/* A volume with a host path is for privileged Pods only. */}}
{{- define "gdr.podSecurity" -}}
{{- .Values.executors.podSecurity | default (ternary "restricted" "privileged" (eq .Values.identity.volume "csi")) -}}
{{- end }}
