{{- define "voc.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "voc.labels" -}}
app.kubernetes.io/name: voc2tflite
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- /* Takes (list . "worker"). */ -}}
{{- define "voc.selector" -}}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "voc.account" -}}
{{- default (ternary (include "voc.name" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{- /* A mistake that would show as a crash loop ends the installation instead. */ -}}
{{- define "voc.check" -}}
{{- range $what := list "store" "photos" -}}
{{- $place := index $.Values $what -}}
{{- if not (or $place.url $place.claim) -}}
{{- fail (printf "%s: set %s.url (s3://BUCKET/FOLDER) or %s.claim (a ReadWriteMany claim)" $what $what $what) -}}
{{- end -}}
{{- if and $place.url $place.claim -}}
{{- fail (printf "%s: set %s.url or %s.claim, not both" $what $what $what) -}}
{{- end -}}
{{- end -}}
{{- if and (not .Values.redis.inside) (not (and .Values.redis.host .Values.redis.secret)) -}}
{{- fail "redis: with inside=false set redis.host and redis.secret (`voc2tflite acl FOLDER` writes the passwords)" -}}
{{- end -}}
{{- end -}}

{{- define "voc.podSecurity" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "voc.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{- /* The heartbeat's file is touched every few seconds while Redis answers. No liveness probe: who holds work while Redis
is away goes on with it, and who hangs ends itself (VOC_STALL_S). */ -}}
{{- define "voc.probes" -}}
startupProbe:
  exec: { command: [sh, -c, 'test -n "$(find /tmp/heartbeat -mmin -0.5)"'] }
  periodSeconds: 5
  failureThreshold: 36
readinessProbe:
  exec: { command: [sh, -c, 'test -n "$(find /tmp/heartbeat -mmin -0.5)"'] }
  periodSeconds: 10
{{- end -}}

{{- /* Takes (list . "worker"). */ -}}
{{- define "voc.env" -}}
{{- $root := index . 0 -}}{{- $service := index . 1 -}}{{- $redis := $root.Values.redis -}}
{{- $host := ternary (printf "%s-redis" (include "voc.name" $root)) $redis.host $redis.inside -}}
{{- $port := ternary 6379 $redis.port $redis.inside -}}
- { name: VOC_BROKER_URL, value: {{ printf "%s://%s@%s:%v/0" (ternary "rediss" "redis" (and (not $redis.inside) $redis.tls)) $service $host $port | quote }} }
- { name: VOC_BROKER_PASSWORD_FILE, value: /run/voc/broker_password }
- { name: VOC_HEARTBEAT_FILE, value: /tmp/heartbeat }
- { name: VOC_STORE, value: {{ default "/out" $root.Values.store.url | quote }} }
- { name: VOC_DATA_ROOT, value: {{ default "/data" $root.Values.photos.url | quote }} }
{{- range $name, $value := merge (dict) $root.Values.bucket.env $root.Values.env }}
- { name: {{ $name }}, value: {{ $value | toString | quote }} }
{{- end }}
{{- end -}}

{{- define "voc.envFrom" -}}
{{- with .Values.bucket.secret -}}
envFrom: [{ secretRef: { name: {{ . | quote }} } }]
{{- end -}}
{{- end -}}

{{- /* Takes (list . "worker" SIZE), SIZE of the folder of temporary files. */ -}}
{{- define "voc.volumes" -}}
{{- $root := index . 0 -}}{{- $service := index . 1 -}}{{- $redis := $root.Values.redis -}}
- { name: tmp, emptyDir: { sizeLimit: {{ index . 2 }} } }
- name: password
  secret:
    secretName: {{ ternary (printf "%s-%s" (include "voc.name" $root) $service) $redis.secret $redis.inside | quote }}
    items: [{ key: {{ printf "%s_password" $service }}, path: broker_password }]
    defaultMode: 0440
{{- with $root.Values.store.claim }}
- { name: store, persistentVolumeClaim: { claimName: {{ . | quote }} } }
{{- end }}
{{- with $root.Values.photos.claim }}
- { name: photos, persistentVolumeClaim: { claimName: {{ . | quote }}, readOnly: true } }
{{- end }}
{{- end -}}

{{- define "voc.mounts" -}}
- { name: tmp, mountPath: /tmp }
- { name: password, mountPath: /run/voc, readOnly: true }
{{- if .Values.store.claim }}
- { name: store, mountPath: /out }
{{- end }}
{{- if .Values.photos.claim }}
- { name: photos, mountPath: /data, readOnly: true }
{{- end }}
{{- end -}}

{{- define "voc.placing" -}}
{{- $placing := dict -}}
{{- range $name := list "nodeSelector" "tolerations" "affinity" -}}
{{- with index $.Values $name }}{{- $_ := set $placing $name . -}}{{- end -}}
{{- end -}}
{{- with .Values.image.pullSecrets }}{{- $_ := set $placing "imagePullSecrets" . -}}{{- end -}}
{{- with $placing }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- /* Takes (list . "worker"). */ -}}
{{- define "voc.image" -}}
{{- $root := index . 0 -}}
{{- printf "%svoc2tflite-%s:%s" $root.Values.image.registry (index . 1) (default $root.Chart.AppVersion $root.Values.image.tag) -}}
{{- end -}}

{{- /* A service's Deployment. Takes a dict: root, name, image, replicas (none: KEDA's), grace, tmp, env, command. */ -}}
{{- define "voc.deployment" -}}
{{- $root := .root -}}{{- $own := index $root.Values .name -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "voc.name" $root }}-{{ .name }}
  labels: {{ include "voc.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .name }}
spec:
  {{- with .replicas }}
  replicas: {{ . }}
  {{- end }}
  selector:
    matchLabels: {{ include "voc.selector" (list $root .name) | nindent 6 }}
  template:
    metadata:
      labels: {{ include "voc.labels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ .name }}
    spec:
      serviceAccountName: {{ include "voc.account" $root }}
      automountServiceAccountToken: false
      enableServiceLinks: false # they would set VOC_... of a release named voc
      terminationGracePeriodSeconds: {{ .grace }}
      securityContext: {{ include "voc.podSecurity" $root | nindent 8 }}
      {{- with include "voc.placing" $root }}{{ . | nindent 6 }}{{ end }}
      containers:
        - name: {{ .name }}
          image: {{ include "voc.image" (list $root .image) }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          {{- with .command }}
          command: {{ toJson . }}
          {{- end }}
          securityContext: {{ include "voc.containerSecurity" $root | nindent 12 }}
          env: {{ include "voc.env" (list $root .name) | nindent 12 }}
            {{- range $name, $value := .env }}
            - { name: {{ $name }}, value: {{ $value | toString | quote }} }
            {{- end }}
          {{- with include "voc.envFrom" $root }}{{ . | nindent 10 }}{{ end }}
          {{- include "voc.probes" $root | nindent 10 }}
          {{- if eq .name "producer" }}
          ports: [{ name: http, containerPort: 9100 }]
          {{- end }}
          resources: {{ toYaml .resources | nindent 12 }}
          volumeMounts: {{ include "voc.mounts" $root | nindent 12 }}
      volumes: {{ include "voc.volumes" (list $root .name .tmp) | nindent 8 }}
{{- end -}}
