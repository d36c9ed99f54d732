import "@mantine/core/styles.css";
import "@mantine/notifications/styles.css";
import "./app/app.css";
import { createTheme, localStorageColorSchemeManager, MantineProvider } from "@mantine/core";
import { Notifications } from "@mantine/notifications";
import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { setNonce } from "get-nonce";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { queryClient } from "./app/queries";
import { router } from "./app/router";
import { loadLanguage } from "./i18n";
import { nonce } from "./lib/prefix";

// What locks the page's scrolling behind a dialog writes a style element: it needs the nonce.
if (nonce) setNonce(nonce);

const theme = createTheme({
  primaryColor: "teal",
  primaryShade: 9,
  autoContrast: true,
  respectReducedMotion: true,
  cursorType: "pointer",
  fontFamily: "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Noto Sans CJK SC', 'Microsoft YaHei', sans-serif",
  fontFamilyMonospace: "ui-monospace, SFMono-Regular, Menlo, Consolas, 'Noto Sans Mono CJK SC', monospace",
  components: {
    Tooltip: { defaultProps: { withArrow: true, multiline: true, maw: 320, events: { hover: true, focus: true, touch: true } } },
    Anchor: { defaultProps: { underline: "hover" } },
    Modal: { defaultProps: { centered: true } },
  },
});

const rootElement = document.getElementById("root");
if (!rootElement) throw new Error("the page has no root");

await loadLanguage();
createRoot(rootElement).render(
  <StrictMode>
    <MantineProvider
      theme={theme}
      defaultColorScheme="auto"
      colorSchemeManager={localStorageColorSchemeManager({ key: "tidewire.scheme" })}
      getStyleNonce={nonce ? () => nonce : undefined}
    >
      <QueryClientProvider client={queryClient}>
        <Notifications position="bottom-right" />
        <RouterProvider router={router} />
      </QueryClientProvider>
    </MantineProvider>
  </StrictMode>,
);
