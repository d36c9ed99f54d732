import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// Where `make ui-dev` finds a running node.
const node = process.env.TIDEWIRE_SERVER ?? "http://127.0.0.1:8080";

export default defineConfig(({ command }) => ({
  // Relative, since the path prefix is known when the node serves the page, not here.
  base: command === "build" ? "./" : "/ui/",
  plugins: [
    react(),
    {
      // The node replaces these in every answer; Vite's own server serves from the root.
      name: "tidewire-placeholders",
      transformIndexHtml: (html) => (command === "serve" ? html.replaceAll("{{prefix}}", "").replaceAll("{{nonce}}", "") : html),
    },
  ],
  html: command === "build" ? { cspNonce: "{{nonce}}" } : {},
  build: {
    target: "es2022",
    outDir: "dist",
    emptyOutDir: true,
    manifest: true,
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 1000,
  },
  server: {
    port: 5173,
    proxy: Object.fromEntries(
      ["/v1", "/openapi.json", "/docs", "/healthz", "/readyz"].map((path) => [
        path,
        // The node takes a cookie from its own origin only, so it is told its own.
        { target: node, changeOrigin: true, ws: true, headers: { Origin: new URL(node).origin } },
      ]),
    ),
  },
  test: {
    projects: [
      {
        extends: true,
        test: { name: "unit", environment: "happy-dom", include: ["src/**/*.test.{ts,tsx}"], testTimeout: 30_000 },
      },
      {
        extends: true,
        test: {
          name: "browser",
          environment: "node",
          include: ["browser/**/*.test.ts"],
          testTimeout: 400_000,
          hookTimeout: 60_000,
          // Each file has a node and a browser of its own, and mostly waits.
          maxWorkers: 3,
        },
      },
      {
        extends: true,
        test: {
          name: "measure",
          environment: "node",
          include: ["browser/**/*.measure.ts"],
          testTimeout: 1_200_000,
          hookTimeout: 60_000,
          fileParallelism: false,
        },
      },
    ],
  },
}));
