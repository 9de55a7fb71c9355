#!/usr/bin/env python3
"""Runs the daemon under churn for a while and notes what it takes.

    soak.py --target target/release/xds-health --minutes 30 --out docs/soak.csv

Endpoints change every second and clusters every half minute, hosts flap, hosts and the control plane are restarted.
Every five seconds memory, descriptors, threads, CPU and the lag of attempts go to a file, from which plot.py draws.
Fails if memory, threads of the daemon's own or standing descriptors at the end are above those after the warm-up, if
tokio's pool has more than a few, if a socket of an attempt outlives its attempt, or if a host that does nothing wrong
fails. Needs grpcio and xds-protos.
"""

import argparse
import concurrent.futures
import csv
import multiprocessing
import os
import random
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import grpc
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.service.discovery.v3 import discovery_pb2

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
ENDPOINTS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
UDP = "type.googleapis.com/envoy.extensions.health_checkers.udp.v3.UdpHealthCheck"
# UdpHealthCheck{send: {text: "70"}, receive: {text: "71"}}
PAYLOADS = b'\n\x04\n\x0270\x12\x04\n\x0271'
CLUSTERS, HOSTS, STEADY = 10, 1000, 20
# Threads of tokio's pool come when answers are built side by side, and go when there was nothing to do for a while.
POOL_NAME, POOL = "tokio-rt-worker", 4


def answer(count, pipe, flap):
    """Hosts: each answers, but for those that flap now; a few are closed and opened again every second."""
    picks = random.Random(1)
    selector = selectors.DefaultSelector()

    def open_at(port):
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.bind(("127.0.0.1", port))
        one.setblocking(False)
        selector.register(one, selectors.EVENT_READ)
        return one

    hosts = [open_at(0) for _ in range(count)]
    ports = [host.getsockname()[1] for host in hosts]
    pipe.send(ports)
    silent, due = set(), time.monotonic()
    while True:
        if flap and time.monotonic() >= due:
            due += 1
            silent = {hosts[i].fileno() for i in picks.sample(range(count), count // 10)}
            for i in picks.sample(range(count), 5):
                selector.unregister(hosts[i])
                hosts[i].close()
                try:
                    hosts[i] = open_at(ports[i])
                except OSError:
                    # Somebody else has the port: this host is gone for good.
                    hosts[i] = open_at(0)
        for key, _ in selector.select(0.1):
            try:
                datagram, asker = key.fileobj.recvfrom(64)
                if key.fd not in silent:
                    key.fileobj.sendto(b"q", asker)
            except OSError:
                pass


def cluster(name, turn):
    message = cluster_pb2.Cluster(name=name, type=cluster_pb2.Cluster.EDS)
    message.eds_cluster_config.eds_config.ads.SetInParent()
    check = message.health_checks.add()
    check.timeout.FromMilliseconds(300)
    check.interval.FromMilliseconds(1000 + 100 * (turn % 3))
    check.unhealthy_threshold.value = 2
    check.healthy_threshold.value = 1
    check.custom_health_check.name = "udp"
    check.custom_health_check.typed_config.type_url = UDP
    check.custom_health_check.typed_config.value = PAYLOADS
    return message


def assignment(name, ports):
    message = endpoint_pb2.ClusterLoadAssignment(cluster_name=name)
    group = message.endpoints.add()
    for port in ports:
        at = group.lb_endpoints.add().endpoint.address.socket_address
        at.address, at.port_value = "127.0.0.1", port
    return message


class Plane(grpc.GenericRpcHandler):
    """A control plane that says something new every second."""

    def __init__(self, ports):
        self.ports, self.picks, self.turn, self.port = ports, random.Random(2), 0, 0
        self.start()

    def start(self):
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        self.server.add_generic_rpc_handlers((self,))
        self.port = self.server.add_insecure_port(f"127.0.0.1:{self.port}")
        self.server.start()

    def restart(self):
        self.server.stop(0).wait()
        time.sleep(2)
        self.start()

    def service(self, details):
        return grpc.stream_stream_rpc_method_handler(
            lambda requests, context: self.say(requests, context),
            discovery_pb2.DiscoveryRequest.FromString,
            lambda message: message.SerializeToString(),
        )

    def say(self, requests, context):
        # What the client has to say is taken, and passed over.
        threading.Thread(target=lambda: self.drain(requests), daemon=True).start()
        while context.is_active():
            self.turn += 1
            count = CLUSTERS - (self.turn // 30) % 3
            names = [f"c{i}" for i in range(count)]
            yield self.response(CLUSTER, [cluster(name, self.turn // 60) for name in names])
            of_each = len(self.ports) // CLUSTERS
            said = []
            for i, name in enumerate(names):
                mine = self.ports[i * of_each : (i + 1) * of_each]
                said.append(assignment(name, self.picks.sample(mine, of_each * 9 // 10)))
            yield self.response(ENDPOINTS, said)
            time.sleep(1)

    @staticmethod
    def drain(requests):
        try:
            for _ in requests:
                pass
        except grpc.RpcError:
            pass
        except Exception:
            pass

    def response(self, url, messages):
        response = discovery_pb2.DiscoveryResponse(
            version_info=str(self.turn), nonce=str(self.turn), type_url=url
        )
        for message in messages:
            response.resources.add(type_url=url, value=message.SerializeToString())
        return response


def bootstrap(plane, steady, directory):
    endpoints = ", ".join(
        f"{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}}}" for port in steady
    )
    check = (
        f'{{timeout: 1s, interval: 0.5s, unhealthy_threshold: 3, healthy_threshold: 1, '
        f'event_log_path: {directory}/events, custom_health_check: {{name: udp, typed_config: '
        f'{{"@type": {UDP}, send: {{text: "70"}}, receive: {{text: "71"}}}}}}}}'
    )
    source = "{api_type: GRPC, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: plane}}]}"
    return f"""
node: {{id: soak, cluster: soak}}
admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}}}
dynamic_resources:
  ads_config: {source}
  cds_config: {{resource_api_version: V3, ads: {{}}}}
static_resources:
  clusters:
  - name: plane
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{http2_protocol_options: {{}}}}
    load_assignment:
      cluster_name: plane
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {plane}}}}}}}
  - name: steady
    load_assignment: {{cluster_name: steady, endpoints: [{{lb_endpoints: [{endpoints}]}}]}}
    health_checks:
    - {check}
"""


class Daemon:
    def __init__(self, target, text, directory):
        path = os.path.join(directory, "bootstrap.yaml")
        with open(path, "w") as file:
            file.write(text)
        self.log = os.path.join(directory, "log")
        self.process = subprocess.Popen(
            [target, "run", "-c", path, "--log-level", "warn,xds_health::cli=info"],
            stdout=subprocess.DEVNULL,
            stderr=open(self.log, "w"),
        )
        deadline = time.monotonic() + 30
        while not (found := re.search(r"admin port open address=(\S+)", open(self.log).read())):
            if time.monotonic() > deadline or self.process.poll() is not None:
                sys.exit(f"the daemon does not run: {open(self.log).read()}")
            time.sleep(0.05)
        self.admin = found.group(1)

    def get(self, path):
        with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=30) as answer:
            return answer.read().decode()

    def descriptors(self):
        """Numbers and what they lead to; a socket has an inode of its own."""
        at, held = f"/proc/{self.process.pid}/fd", set()
        for name in os.listdir(at):
            try:
                held.add((name, os.readlink(f"{at}/{name}")))
            except FileNotFoundError:
                pass
        return held

    def udp(self):
        lines = open(f"/proc/{self.process.pid}/net/udp").read().splitlines()[1:]
        return {f"socket:[{line.split()[9]}]" for line in lines}

    def proc(self):
        at = f"/proc/{self.process.pid}"
        status = open(f"{at}/status").read()
        fields = open(f"{at}/stat").read().rsplit(")", 1)[1].split()
        names = []
        for thread in os.listdir(f"{at}/task"):
            try:
                names.append(open(f"{at}/task/{thread}/comm").read().strip())
            except (FileNotFoundError, ProcessLookupError):
                pass
        pool = names.count(POOL_NAME)
        return {
            "memory_mib": int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024,
            "threads": len(names),
            "own_threads": len(names) - pool,
            "pool": pool,
            "cpu_s": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
        }


def buckets(text):
    found = re.findall(r'^xds_health_schedule_lag_ms_bucket\{le="([^"]+)"\} (\d+)', text, re.M)
    return [(float(bound.replace("+Inf", "inf")), int(count)) for bound, count in found]


def quantile(before, after, part):
    counts = [(bound, b - a) for (bound, b), (_, a) in zip(after, before or [(0, 0)] * len(after))]
    total = counts[-1][1] if counts else 0
    if total == 0:
        return 0.0
    return next(bound for bound, count in counts if count >= part * total)


def number(text, name):
    found = re.search(rf"^{re.escape(name)}: (\d+)", text, re.M)
    return int(found.group(1)) if found else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--warm-up", type=float, default=3, help="minutes that are not judged")
    parser.add_argument("--every", type=float, default=5, help="seconds between samples")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    near, far = multiprocessing.Pipe()
    calm, far2 = multiprocessing.Pipe()
    for process in [
        multiprocessing.Process(target=answer, args=(HOSTS, far, True), daemon=True),
        multiprocessing.Process(target=answer, args=(STEADY, far2, False), daemon=True),
    ]:
        process.start()
    plane = Plane(near.recv())
    directory = tempfile.mkdtemp()
    daemon = Daemon(args.target, bootstrap(plane.port, calm.recv(), directory), directory)
    began, restarted, lag, rows = time.monotonic(), time.monotonic(), None, []
    held, left_over = daemon.descriptors(), set()
    try:
        with open(args.out, "w", newline="") as file:
            writer = None
            while time.monotonic() - began < args.minutes * 60:
                time.sleep(args.every)
                if time.monotonic() - restarted > 60:
                    plane.restart()
                    restarted = time.monotonic()
                stats, prometheus = daemon.get("/stats"), daemon.get("/stats/prometheus")
                now = buckets(prometheus)
                row = {"seconds": round(time.monotonic() - began, 1), **daemon.proc()}
                # No attempt runs for as long as it is between two samples: what is in both is no attempt's.
                before, held = held, daemon.descriptors()
                row["descriptors"], row["standing"] = len(held), len(before & held)
                left_over |= {lead for _, lead in before & held} & daemon.udp()
                row["lag_p50_ms"] = quantile(lag, now, 0.5)
                row["lag_p99_ms"] = quantile(lag, now, 0.99)
                lag = now
                row["in_flight"] = number(stats, "xds_health.attempts_in_flight")
                row["late"] = number(stats, "xds_health.attempts_late")
                row["stalls"] = number(stats, "xds_health.stalls")
                row["updates"] = number(stats, "cluster_manager.cds.update_success")
                row["attempts"] = sum(map(int, re.findall(r"^cluster\.\w+\.health_check\.attempt: (\d+)", stats, re.M)))
                row["steady_failures"] = number(stats, "cluster.steady.health_check.failure")
                row["steady_healthy"] = number(stats, "cluster.steady.membership_healthy")
                rows.append(row)
                if writer is None:
                    writer = csv.DictWriter(file, row.keys())
                    writer.writeheader()
                writer.writerow({k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()})
                file.flush()
    finally:
        daemon.process.send_signal(signal.SIGTERM)
    code = daemon.process.wait(20)
    judged = [row for row in rows if row["seconds"] >= args.warm_up * 60] or rows
    early, late = judged[: max(1, len(judged) // 5)], judged[-max(1, len(judged) // 5) :]
    worst = lambda rows, name: max(row[name] for row in rows)
    mean = lambda rows, name: sum(row[name] for row in rows) / len(rows)
    for name in ["memory_mib", "descriptors", "standing", "threads", "lag_p99_ms"]:
        print(f"{name}: first fifth {mean(early, name):.1f}, last fifth {mean(late, name):.1f}, most {worst(judged, name):.1f}")
    print(f"attempts {rows[-1]['attempts']}, updates {rows[-1]['updates']}, CPU {rows[-1]['cpu_s']:.1f} s")
    wrong = []
    if code != 0:
        wrong.append(f"the daemon ended with {code}")
    if mean(late, "memory_mib") > mean(early, "memory_mib") * 1.1 + 2:
        wrong.append("memory grows")
    # The least at the end beside the most at first: what comes and goes is not growth.
    for name in ["own_threads", "standing"]:
        if min(row[name] for row in late) > worst(early, name):
            wrong.append(f"{name} grow")
    if worst(judged, "pool") > POOL:
        wrong.append("tokio's pool grows")
    if left_over:
        wrong.append(f"sockets outlived their attempts: {sorted(left_over)}")
    if any(row["steady_healthy"] != STEADY for row in judged):
        wrong.append("a host that does nothing wrong was failed")
    if wrong:
        sys.exit("; ".join(wrong))


main()
