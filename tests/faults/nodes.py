"""A Ray cluster of several nodes on this machine. In a process of its own: Ray forks, and JAX may not survive that.

Prints its address. A line `add CPUS` adds a node and answers with its number; `kill NUMBER` kills all its processes
with SIGKILL. The end of the input ends the cluster.
"""

import sys

from ray.cluster_utils import Cluster


def main() -> None:
    # A node that is silent for two seconds is lost; Ray's own patience is longer.
    settings = {"health_check_period_ms": 500, "health_check_failure_threshold": 4}
    # The head only keeps the books, as on a real cluster.
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": settings})
    nodes = []
    print(cluster.address, flush=True)
    for line in sys.stdin:
        order, number = line.split()
        if order == "add":
            nodes.append(cluster.add_node(num_cpus=int(number)))
            print(len(nodes) - 1, flush=True)
        else:
            cluster.remove_node(nodes[int(number)], allow_graceful=False)
            print("killed", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
