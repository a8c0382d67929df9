{{- define "spangap.name" -}}
{{- default (ternary .Release.Name (printf "%s-spangap" .Release.Name) (contains "spangap" .Release.Name)) .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "spangap.selector" -}}
app.kubernetes.io/name: spangap
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "spangap.labels" -}}
{{ include "spangap.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "spangap.image" -}}
{{ required "image.repository: name the image that scripts/image.sh built, in a registry of yours" .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
