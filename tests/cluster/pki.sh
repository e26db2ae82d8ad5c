# shellcheck shell=bash
# Certificates and kubeconfigs of the node. Sourced by node-up.sh.

# make_key FILE
make_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1"; }

make_authority() {
  make_key ca.key
  openssl req -x509 -new -key ca.key -out ca.crt -days 365 -subj /CN=securebench-ca
  make_key sa.key
  openssl ec -in sa.key -pubout -out sa.pub
}

# make_certificate NAME SUBJECT [ALTERNATIVE NAMES]: with a kubeconfig of that name.
make_certificate() {
  make_key "$1.key"
  openssl req -new -key "$1.key" -out "$1.csr" -subj "$2"
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -out "$1.crt" -days 365 -extfile \
    <(printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "${3:-DNS:$1}")
  render kubeconfig.in | sed "s#@USER@#$1#g" > "$STATE/$1.kubeconfig"
  chmod 600 "$STATE/$1.kubeconfig"
}

make_certificates() {
  local service=DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc
  make_authority
  make_certificate apiserver /CN=kube-apiserver "$service,DNS:localhost,IP:10.96.0.1,IP:127.0.0.1,IP:$NODE_IP"
  make_certificate admin /O=system:masters/CN=admin
  make_certificate controller-manager /CN=system:kube-controller-manager
  make_certificate scheduler /CN=system:kube-scheduler
  make_certificate kubelet "/O=system:nodes/CN=system:node:$NODE_NAME" "DNS:$NODE_NAME,IP:$NODE_IP"
  make_certificate proxy /CN=system:kube-proxy
}

make_pki() { (cd "$STATE/pki" && umask 077 && make_certificates 2> "$STATE/logs/openssl.log"); }
