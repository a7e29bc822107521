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

{{/*
The nodes of jobs, as far as the values name them: a list of nodes' properties, each a list of expressions of which at least
one holds on every other node. Only labels that every node has (its system and architecture) name no node.
*/}}
{{- define "gdr.nodesOfJobs" -}}
{{- $nodes := list }}
{{- $policy := .Values.executors.privilegedPolicy }}
{{- $selectors := regexFindAll "(?m)^[ \t]*node_selector[ \t]*=[ \t]*\\{[^}]*\\}" $policy -1 }}
{{- $sections := regexFindAll "(?m)^[ \t]*\\[\\[[ \t]*privileged[ \t]*\\]\\]" $policy -1 }}
{{- if and $policy (or (not $sections) (ne (len $selectors) (len $sections))) }}
{{- fail "executors.privilegedPolicy: the chart must know the nodes of privileged jobs, to keep the controller off them; write each of its sections as [[privileged]] with a line `node_selector = { \"label\" = \"value\" }`" }}
{{- end }}
{{- range uniq $selectors }}
{{- $labels := list }}
{{- range regexFindAll "(\"[^\"]*\"|'[^']*'|[A-Za-z0-9_-]+)[ \t]*=[ \t]*(\"[^\"]*\"|'[^']*')" (regexReplaceAll "^[^{]*" . "") -1 }}
{{- $key := regexFind "^(\"[^\"]*\"|'[^']*'|[A-Za-z0-9_-]+)" . | trimAll "\"'" }}
{{- $value := regexFind "(\"[^\"]*\"|'[^']*')$" . | trimAll "\"'" }}
{{- $labels = append $labels (dict "key" $key "operator" "NotIn" "values" (list $value)) }}
{{- end }}
{{- $nodes = append $nodes $labels }}
{{- end }}
{{- $labels := list }}
{{- range $key, $value := omit (((.Values.executors.template).spec).nodeSelector | default dict) "kubernetes.io/os" "kubernetes.io/arch" }}
{{- $labels = append $labels (dict "key" $key "operator" "NotIn" "values" (list (toString $value))) }}
{{- end }}
{{- if $labels }}{{ $nodes = append $nodes $labels }}{{ end }}
{{- toJson (dict "nodes" $nodes) }}
{{- end }}

{{/*
Where the controller runs: what `affinity` says, and away from jobs. A job beside it can only be avoided: what the scheduler
must not do it would not do the other way round either, and where there is one node, no job would ever start.
*/}}
{{- define "gdr.affinity" -}}
{{- $affinity := deepCopy .Values.affinity }}
{{- $node := $affinity.nodeAffinity | default dict }}
{{- $nodes := (include "gdr.nodesOfJobs" . | fromJson).nodes }}
{{- if eq .Values.nodesOfJobs "exclude" }}
{{- range $labels := $nodes }}
{{- $elsewhere := false }}
{{- range $label := $labels }}
{{- if ne (toString (get $.Values.nodeSelector $label.key)) (first $label.values) }}{{ $elsewhere = true }}{{ end }}
{{- if not (hasKey $.Values.nodeSelector $label.key) }}{{ $elsewhere = true }}{{ end }}
{{- end }}
{{- if not $elsewhere }}
{{- fail "nodeSelector: it names the nodes of jobs only, and off these nodesOfJobs=exclude keeps the controller, so it would be on no node; name other nodes, or set nodesOfJobs=avoid" }}
{{- end }}
{{- end }}
{{- $required := $node.requiredDuringSchedulingIgnoredDuringExecution | default dict }}
{{- $terms := $required.nodeSelectorTerms | default (list dict) }}
{{- range $labels := $nodes }}
{{- $narrower := list }}
{{- range $term := $terms }}
{{- range $label := $labels }}
{{- $expressions := append ($term.matchExpressions | default list) $label }}
{{- $narrower = append $narrower (set (deepCopy $term) "matchExpressions" $expressions) }}
{{- end }}
{{- end }}
{{- $terms = $narrower }}
{{- end }}
{{- if $nodes }}
{{- $_ := set $node "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) }}
{{- end }}
{{- else }}
{{- $preferred := $node.preferredDuringSchedulingIgnoredDuringExecution | default list }}
{{- range $labels := $nodes }}
{{- range $label := $labels }}
{{- $preferred = append $preferred (dict "weight" 100 "preference" (dict "matchExpressions" (list $label))) }}
{{- end }}
{{- end }}
{{- if $preferred }}
{{- $_ := set $node "preferredDuringSchedulingIgnoredDuringExecution" $preferred }}
{{- end }}
{{- end }}
{{- if $node }}
{{- $_ := set $affinity "nodeAffinity" $node }}
{{- end }}
{{- $jobs := dict "topologyKey" "kubernetes.io/hostname" "namespaces" (list .Values.executors.namespace) "labelSelector" (dict "matchLabels" (include "gdr.executors" . | fromYaml)) }}
{{- $apart := $affinity.podAntiAffinity | default dict }}
{{- $preferred := append ($apart.preferredDuringSchedulingIgnoredDuringExecution | default list) (dict "weight" 100 "podAffinityTerm" $jobs) }}
{{- $_ := set $affinity "podAntiAffinity" (set $apart "preferredDuringSchedulingIgnoredDuringExecution" $preferred) }}
{{- toYaml $affinity }}
{{- end }}

{{/* A volume with a host path is for privileged Pods only, also of the controller where jobs share its namespace. */}}
{{- define "gdr.podSecurity" -}}
{{- $shared := and (eq .Values.executors.namespace .Release.Namespace) (eq .Values.identity.means "spire-server") }}
{{- .Values.executors.podSecurity | default (ternary "restricted" "privileged" (and (eq .Values.identity.volume "csi") (not $shared))) -}}
{{- end }}

{{/*
Of the controller's way out: what the values name, and the ports of Gitea and NATS, which stand in their addresses.
*/}}
{{- define "gdr.controllerPorts" -}}
{{- $ports := list }}
{{- range prepend (splitList "," .Values.nats.url) .Values.gitea.url }}
{{- $url := trim . }}
{{- $port := regexFind ":[0-9]+$" (regexReplaceAll "^([a-z]+://[^/]*).*$" $url "${1}") | trimPrefix ":" }}
{{- $default := get (dict "https" "443" "http" "80" "tls" "4222" "nats" "4222") (regexFind "^[a-z]+" $url) }}
{{- $ports = append $ports (int ($port | default $default)) }}
{{- end }}
{{- range .Values.networkPolicies.controllerPorts }}{{ $ports = append $ports (int .) }}{{ end }}
{{- toJson (dict "ports" (uniq $ports)) }}
{{- end }}
