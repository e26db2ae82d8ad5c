# shellcheck shell=bash
# The node's network namespace. Sourced by node-up.sh.

# One veth to the host, which does not forward: nothing that a Pod sends leaves this machine.
make_network() {
  ip netns add "$NETNS"
  ip link add "$HOST_VETH" type veth peer name eth0 netns "$NETNS"
  ip addr add "$HOST_IP/30" dev "$HOST_VETH"
  ip link set "$HOST_VETH" up
  ip -n "$NETNS" addr add "$NODE_IP/30" dev eth0
  ip -n "$NETNS" link set eth0 up
  ip -n "$NETNS" link set lo up
  ip -n "$NETNS" route add default via "$HOST_IP"
  in_node sysctl -qw net.ipv4.ip_forward=1
  mark_node_traffic
}

# Cilium lets traffic of the node (the kubelet's probes) pass a default-deny policy only with its mark, which it would
# set by iptables modules that not every kernel can load.
mark_node_traffic() {
  in_node nft "table ip sbnode {
    chain output {
      type route hook output priority mangle;
      ip daddr $POD_CIDR meta mark set meta mark & 0xfffff0ff | 0x00000c00;
    }
  }"
}

remove_network() {
  if ip link show "$HOST_VETH" >/dev/null 2>&1; then ip link del "$HOST_VETH"; fi
  if ip netns list | grep -q "^$NETNS\b"; then ip netns del "$NETNS"; fi
}
