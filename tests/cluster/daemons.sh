# shellcheck shell=bash
# The node's daemons and their flags, a function each. Sourced, never run.

start_etcd() {
  # A disposable cluster needs no durable etcd.
  start etcd etcd --data-dir "$STATE/etcd" --unsafe-no-fsync --log-level warn \
    --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380
}

start_containerd() {
  render containerd.toml.in > "$STATE/containerd.toml"
  render runsc.toml.in > "$STATE/runsc.toml"
  # The CNI plugin inherits the socket of this node's Cilium.
  start containerd env "CILIUM_SOCK=$STATE/cilium/run/cilium.sock" \
    "$BIN/containerd" --config "$STATE/containerd.toml"
}

start_apiserver() {
  local pki=$STATE/pki
  # The node's name is in no resolver: logs and exec go to its address.
  start apiserver kube-apiserver --etcd-servers=http://127.0.0.1:2379 --allow-privileged=true \
    --bind-address="$NODE_IP" --advertise-address="$NODE_IP" --service-cluster-ip-range="$SERVICE_CIDR" \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
    --client-ca-file="$pki/ca.crt" --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" \
    --service-account-issuer=https://kubernetes.default.svc \
    --service-account-key-file="$pki/sa.pub" --service-account-signing-key-file="$pki/sa.key" \
    --kubelet-client-certificate="$pki/admin.crt" --kubelet-client-key="$pki/admin.key" \
    --kubelet-certificate-authority="$pki/ca.crt" --kubelet-preferred-address-types=InternalIP
}

start_controller_manager() {
  start controller-manager kube-controller-manager --kubeconfig="$STATE/controller-manager.kubeconfig" \
    --service-account-private-key-file="$STATE/pki/sa.key" --root-ca-file="$STATE/pki/ca.crt" \
    --use-service-account-credentials --leader-elect=false --bind-address=127.0.0.1 \
    --allocate-node-cidrs=true --cluster-cidr="$POD_CIDR"
}

start_scheduler() {
  start scheduler kube-scheduler --kubeconfig="$STATE/scheduler.kubeconfig" --leader-elect=false \
    --bind-address=127.0.0.1
}

start_kubelet() {
  render kubelet.yaml.in > "$STATE/kubelet.yaml"
  render cni.conflist.in > "$STATE/cni/05-cilium.conflist"
  start kubelet kubelet --config="$STATE/kubelet.yaml" --kubeconfig="$STATE/kubelet.kubeconfig" \
    --hostname-override="$NODE_NAME" --node-ip="$NODE_IP" --root-dir="$STATE/kubelet"
}

start_kube_proxy() {
  start kube-proxy kube-proxy --kubeconfig="$STATE/proxy.kubeconfig" --hostname-override="$NODE_NAME" \
    --proxy-mode=nftables --cluster-cidr="$POD_CIDR" --bind-address="$NODE_IP" --conntrack-max-per-core=0
}

# Cilium writes its pid and sockets to a fixed folder, whatever it is told; a link keeps them in the state folder.
link_cilium_run() {
  if [ -e /run/cilium ] && ! has_own_cilium_run; then die "/run/cilium is there: another Cilium runs on this machine"; fi
  ln -sfn "$STATE/cilium/host" /run/cilium
}

CILIUM_COMMON=(--k8s-kubeconfig-path="$STATE/admin.kubeconfig" --ipam=kubernetes --identity-allocation-mode=crd
  --enable-ipv4=true --enable-ipv6=false)
CILIUM_ENVIRONMENT=(env "PATH=$CLUSTER_HOME/cilium/bin:$PATH" "K8S_NODE_NAME=$NODE_NAME" CILIUM_K8S_NAMESPACE=kube-system)

start_cilium_operator() {
  start cilium-operator "${CILIUM_ENVIRONMENT[@]}" cilium-operator-generic "${CILIUM_COMMON[@]}" \
    --operator-api-serve-addr=127.0.0.1:9234
}

start_cilium_agent() {
  link_cilium_run
  cp -r "$CLUSTER_HOME/cilium/bpf" "$STATE/cilium/lib/"
  start cilium-agent "${CILIUM_ENVIRONMENT[@]}" cilium-agent "${CILIUM_COMMON[@]}" --routing-mode=native \
    --ipv4-native-routing-cidr="$POD_CIDR" --enable-ipv4-masquerade=false --enable-endpoint-routes=true \
    --kube-proxy-replacement=false --install-iptables-rules=false --enable-l7-proxy=false --enable-hubble=false \
    --enable-health-checking=false --enable-endpoint-health-checking=false --allow-localhost=always \
    --k8s-require-ipv4-pod-cidr=true --devices=eth0 --lib-dir="$STATE/cilium/lib" --state-dir="$STATE/cilium/run" \
    --socket-path="$STATE/cilium/run/cilium.sock" --cgroup-root="$STATE/cilium/cgroup" --bpf-root="$STATE/cilium/bpf"
}
