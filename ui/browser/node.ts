import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";

/** The binary under test, with the console in it. */
export const binary = resolve(process.env.TIDEWIRE_BIN ?? "../bin/tidewire");

/** A node on a data folder of its own. */
export class TestNode {
  readonly dir = mkdtempSync(join(tmpdir(), "tidewire-ui-"));
  url = "";
  private process: ChildProcess | null = null;
  private output = "";

  constructor(private readonly args: string[] = []) {}

  async start(prefix = ""): Promise<void> {
    const any = "127.0.0.1:0";
    const args = [
      "serve",
      "--data-dir",
      join(this.dir, "data"),
      "--http-listen",
      this.url ? new URL(this.url).host : any,
      "--kafka-listen",
      "off",
    ];
    this.process = spawn(binary, [...args, "--gossip-listen", any, "--peer-listen", any, ...this.args], {
      env: { PATH: process.env.PATH ?? "", HOME: this.dir },
    });
    this.process.stdout?.on("data", (b) => {
      this.output += b;
    });
    this.process.stderr?.on("data", (b) => {
      this.output += b;
    });
    const file = join(this.dir, "data", "endpoints.json");
    await until(async () => {
      if (this.process?.exitCode !== null) throw new Error(`the node ended:\n${this.output}`);
      if (!existsSync(file)) return false;
      const text = readFileSync(file, "utf8");
      const http = /"http(?:_url)?":\s*"([^"]+)"/.exec(text)?.[1];
      if (!http) return false;
      this.url = new URL(http).origin;
      return (await fetch(`${this.url}${prefix}/readyz`).catch(() => null))?.ok ?? false;
    }, 60_000);
  }

  /** The address that a first start prints for making the administrator. */
  setupAddress(): string {
    const found = /http:\/\/[^\s]+\/ui\/setup\?token=[A-Za-z0-9._~-]+/.exec(this.output);
    if (!found) throw new Error(`no setup address in:\n${this.output}`);
    return found[0];
  }

  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    const p = this.process;
    if (!p || p.exitCode !== null || p.signalCode !== null) return;
    const ended = new Promise((r) => p.once("exit", r));
    p.kill(signal);
    await ended;
  }

  async remove(): Promise<void> {
    await this.stop("SIGKILL");
    rmSync(this.dir, { recursive: true, force: true });
  }
}

export async function until(check: () => Promise<boolean> | boolean, limit = 15_000): Promise<void> {
  const end = Date.now() + limit;
  for (;;) {
    if (await check()) return;
    if (Date.now() > end) throw new Error(`not within ${limit} ms: ${check}`);
    await new Promise((r) => setTimeout(r, 50));
  }
}

export const launch = (): Promise<Browser> =>
  chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"],
  });

/** What a page complained of: errors in its console, uncaught errors, reports of its content security policy. */
export function complaints(page: Page): string[] {
  const found: string[] = [];
  page.on("console", (m) => {
    if (m.type() !== "error") return;
    // The browser itself logs every refused request; what the page makes of it is tested.
    if (/^Failed to load resource: the server responded with a status of 4(01|03|04|09|12|16|22)/.test(m.text())) return;
    found.push(`console: ${m.text()} (${m.location().url})`);
  });
  page.on("pageerror", (e) => found.push(`error: ${e.stack ?? e.message}`));
  return found;
}

/** A context that collects reports of policies from its first moment on. */
export async function newContext(browser: Browser, options: Parameters<Browser["newContext"]>[0] = {}): Promise<BrowserContext> {
  const context = await browser.newContext({
    locale: "en-US",
    timezoneId: "Europe/Berlin",
    viewport: { width: 1280, height: 800 },
    ...options,
  });
  context.setDefaultTimeout(15_000);
  await context.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (e) => {
      // eslint-disable-next-line no-console
      console.error(`policy: ${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}:${e.lineNumber}`);
    });
  });
  return context;
}

/** A call of the API, past the console. */
export async function ask(node: TestNode, method: string, path: string, token?: string, body?: unknown): Promise<Response> {
  const answer = await fetch(node.url + path, {
    method,
    headers: { "Content-Type": "application/json", ...(token ? { Authorization: `Bearer ${token}` } : {}) },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(`${method} ${path}: ${await answer.text()}`);
  return answer;
}

export async function logIn(page: Page, node: { url: string }, username = "admin", password = "tidewire"): Promise<void> {
  await page.goto(`${node.url}/ui/login`);
  await page.getByLabel("User name").fill(username);
  await page.getByLabel("Password", { exact: true }).fill(password);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.waitForURL("**/ui/overview");
}

/** What stands between a browser and the node, and does not let WebSockets live. */
export class Middleman {
  /** How many WebSockets were asked for. */
  sockets = 0;
  url = "";
  private readonly open = new Set<Socket>();
  private server: Server | null = null;

  /** refuse: no WebSocket gets through. cut: each that is there can be cut. */
  constructor(
    private readonly node: TestNode,
    private readonly how: "refuse" | "cut",
  ) {}

  async start(): Promise<void> {
    const to = new URL(this.node.url);
    this.server = createServer((client) => {
      const upstream = connect(Number(to.port), to.hostname);
      for (const [a, b] of [
        [client, upstream],
        [upstream, client],
      ] as const) {
        a.on("error", () => b.destroy());
        a.on("close", () => b.destroy());
      }
      upstream.pipe(client);
      client.on("data", (chunk) => {
        if (/^upgrade: websocket/im.test(chunk.toString("latin1"))) {
          this.sockets++;
          if (this.how === "refuse") {
            client.end("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            return;
          }
          this.open.add(client);
        }
        upstream.write(chunk);
      });
    });
    await new Promise<void>((done) => this.server?.listen(0, "127.0.0.1", done));
    this.url = `http://127.0.0.1:${(this.server.address() as { port: number }).port}`;
  }

  cut(): void {
    for (const socket of this.open) socket.destroy();
    this.open.clear();
  }

  stop(): void {
    this.cut();
    this.server?.close();
  }
}
