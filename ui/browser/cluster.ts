import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ask, binary, TestNode, until } from "./node";

/** A free address of this machine, for a port that has to stay the same over restarts. */
function freeAddress(): Promise<string> {
  return new Promise((done) => {
    const server = createServer();
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address() as { port: number };
      server.close(() => done(`127.0.0.1:${port}`));
    });
  });
}

export interface ClusterState {
  controller: number | null;
  quorum: { available: boolean; voters: number[]; online: number[] };
  brokers: { id: number; state: string; out_of_sync: number }[];
  under_replicated_partitions: number;
  offline_partitions: number;
}

/** Nodes of one cluster, each a process of its own. Node n is nodes[n - 1]. */
export class TestCluster {
  readonly dir = mkdtempSync(join(tmpdir(), "tidewire-ui-cluster-"));
  readonly nodes: TestNode[] = [];
  token = "";
  private gossip: string[] = [];

  async start(n = 3): Promise<void> {
    const key = join(this.dir, "key");
    writeFileSync(key, execFileSync(binary, ["cluster", "keygen"]), { mode: 0o600 });
    for (let i = 0; i < n; i++) this.gossip.push(await freeAddress());
    for (let i = 0; i < n; i++) this.nodes.push(this.make(i, n));
    await Promise.all(this.nodes.map((node) => node.start()));
    this.token = await this.newToken();
    await until(async () => {
      const { quorum, brokers } = await this.state();
      return quorum.voters.length === n && brokers.length === n && brokers.every((b) => b.state === "online");
    }, 30_000);
  }

  /** One more node joins. */
  async grow(): Promise<void> {
    const i = this.nodes.length;
    this.gossip.push(await freeAddress());
    const node = this.make(i, 0);
    this.nodes.push(node);
    await node.start();
  }

  private make(i: number, expect: number): TestNode {
    const join_ = this.gossip.slice(0, 2).flatMap((address) => ["--join", address]);
    const own = ["--node-id", String(i + 1), "--gossip-listen", this.gossip[i] as string, "--rack", `rack-${i + 1}`];
    return new TestNode(["--dev", ...own, "--cluster-key-file", join(this.dir, "key"), "--bootstrap-expect", String(expect), ...join_]);
  }

  node(id: number): TestNode {
    return this.nodes[id - 1] as TestNode;
  }

  async newToken(at = 1): Promise<string> {
    const answer = await ask(this.node(at), "POST", "/v1/auth/login", undefined, { username: "admin", password: "tidewire" });
    return ((await answer.json()) as { access_token: string }).access_token;
  }

  async call<T>(method: string, path: string, body?: unknown, at = 1): Promise<T> {
    const answer = await ask(this.node(at), method, path, this.token, body);
    return (answer.status === 204 ? undefined : await answer.json()) as T;
  }

  state(at = 1): Promise<ClusterState> {
    return this.call("GET", "/v1/cluster", undefined, at);
  }

  /** All nodes are there, and every replica is in sync. */
  async whole(): Promise<void> {
    await until(async () => {
      const s = await this.state().catch(() => null);
      return s?.quorum.available === true && s.brokers.every((b) => b.state === "online" && b.out_of_sync === 0);
    }, 60_000);
  }

  async remove(): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.remove()));
    rmSync(this.dir, { recursive: true, force: true });
  }
}
