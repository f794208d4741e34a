"""The nodes of a Ray cluster, in a process of their own: `python ray_nodes.py`.

Prints the address; then each line on standard input, "add" or "kill", adds a node of one processor or kills the one
that was added last with all its processes, and is answered with the process id of that node's raylet.
"""

import sys

from ray.cluster_utils import Cluster

NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}


def raylet(node):
    return node.all_processes["raylet"][0].process.pid


def say(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main():
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    say(f"{cluster.address} {raylet(cluster.head_node)}")
    nodes = []
    for line in sys.stdin:
        if line.strip() == "add":
            nodes.append(cluster.add_node(**NODE))
            say(raylet(nodes[-1]))
        else:
            node = nodes.pop()
            say(raylet(node))
            cluster.remove_node(node, allow_graceful=False)
    cluster.shutdown()


if __name__ == "__main__":
    main()
