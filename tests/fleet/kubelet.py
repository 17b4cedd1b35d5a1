# SPDX-License-Identifier: Apache-2.0
"""A kubelet's pod-resources socket: usage: kubelet.py SOCKET FILE

Each call answers what FILE holds then: JSON [[pod, namespace, [[container, resource, [device, ...]], ...]], ...];
the word "hang" (no answer for 30 s), "fail" (status INTERNAL), "big" (17 MiB) or "garbage". Without python3-grpcio: status 77.
"""
import concurrent.futures, json, sys, time
try:
    import grpc
except ImportError:
    sys.exit(77)


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def text(field, b):
    b = b.encode() if isinstance(b, str) else b
    return varint(field << 3 | 2) + varint(len(b)) + b


def answer(pods):
    out = b""
    for pod, namespace, containers in pods:
        inside = text(1, pod) + text(2, namespace)
        for container, resource, devices in containers:
            # cpu ids (packed numbers), the topology of a device and memory are there too, and of no interest
            topology = text(3, text(1, varint(1 << 3) + varint(0)))
            inside += text(3, text(1, container) + text(2, text(1, resource) + b"".join(text(2, d) for d in devices) + topology)
                           + text(3, varint(3) + varint(300)) + text(4, text(1, "memory") + varint(2 << 3) + varint(1 << 40)))
        out += text(1, inside)
    return out


def call(request, context):
    assert request == b"", request
    word = open(sys.argv[2]).read()
    if word == "hang":
        time.sleep(30)
    if word == "fail":
        context.abort(grpc.StatusCode.INTERNAL, "out of order")
    if word == "big":
        return b"\n" + varint(17 << 20) + bytes(17 << 20)
    if word == "garbage":
        return b"\x0a\xff\xff\xff\xff\x07no"
    return answer(json.loads(word))


class Lister(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method == "/v1.PodResourcesLister/List":
            return grpc.unary_unary_rpc_method_handler(call)


server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), options=[("grpc.max_send_message_length", -1)])
server.add_generic_rpc_handlers((Lister(),))
server.add_insecure_port("unix:" + sys.argv[1])
server.start()
print("serving", flush=True)
server.wait_for_termination()
