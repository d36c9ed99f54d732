import {
  ActionIcon,
  Alert,
  AppShell,
  Badge,
  Burger,
  Button,
  Group,
  Kbd,
  Menu,
  ScrollArea,
  Stack,
  Text,
  useMantineColorScheme,
} from "@mantine/core";
import { useDisclosure, useHotkeys } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { Outlet, useNavigate, useRouterState } from "@tanstack/react-router";
import {
  Activity,
  ArrowLeftRight,
  Braces,
  Clock,
  Gauge,
  Info,
  Languages,
  Layers,
  LayoutDashboard,
  ListTodo,
  LogOut,
  ScrollText,
  Search,
  Server,
  Settings,
  ShieldCheck,
  SunMoon,
  Table2,
  UserRound,
  UsersRound,
} from "lucide-react";
import { lazy, Suspense, useEffect, useRef, useState } from "react";
import { logOut } from "../api/client";
import { type Key, language, useT } from "../i18n";
import { consoleOf, findings } from "../lib/cluster";
import { duration } from "../lib/format";
import { useStore } from "../lib/store";
import { Link, useGo } from "../parts/link";
import { timeMode } from "./prefs";
import { clusterQuery, infoQuery, queryClient } from "./queries";
import { connection, session } from "./session";

const Palette = lazy(() => import("./palette"));
const Keys = lazy(() => import("./keys"));
const LoginAgain = lazy(() => import("./loginAgain"));

const pages: { to: string; label: Key; icon: typeof Info; feature?: string; admin?: boolean; key: string }[] = [
  { to: "/overview", label: "nav.overview", icon: LayoutDashboard, key: "o" },
  { to: "/topics", label: "nav.topics", icon: Table2, key: "t" },
  { to: "/groups", label: "nav.groups", icon: UsersRound, key: "c" },
  { to: "/nodes", label: "nav.nodes", icon: Server, key: "n" },
  { to: "/replication", label: "nav.replication", icon: Layers, key: "r" },
  { to: "/reassignments", label: "nav.reassignments", icon: ArrowLeftRight, key: "e" },
  { to: "/access", label: "nav.access", icon: ShieldCheck, feature: "acls", key: "a" },
  { to: "/quotas", label: "nav.quotas", icon: Gauge, feature: "quotas", key: "q" },
  { to: "/operations", label: "nav.operations", icon: ListTodo, feature: "operations", key: "p" },
  { to: "/metrics", label: "nav.metrics", icon: Activity, feature: "metrics-history", key: "m" },
  { to: "/audit", label: "nav.audit", icon: ScrollText, key: "u" },
  { to: "/settings", label: "nav.settings", icon: Settings, key: "s" },
  { to: "/api", label: "nav.api", icon: Braces, key: "i" },
  { to: "/about", label: "nav.about", icon: Info, key: "b" },
];

/** g then a letter goes to a page, as long as the second key comes within a second. */
function useGoKeys() {
  const navigate = useNavigate();
  const armed = useRef(0);
  useEffect(() => {
    const onKey = (e: KeyboardEvent) => {
      const target = e.target as HTMLElement | null;
      if (e.ctrlKey || e.metaKey || e.altKey || target?.closest("input, textarea, select, [contenteditable=true]")) return;
      if (e.key === "g") {
        armed.current = e.timeStamp;
        return;
      }
      const page = pages.find((p) => p.key === e.key);
      if (page && e.timeStamp - armed.current < 1000) {
        e.preventDefault();
        void navigate({ to: page.to });
      }
      armed.current = -1e9;
      if (e.key === "/") {
        const field = document.querySelector<HTMLInputElement>("[data-search]");
        if (field) {
          e.preventDefault();
          field.focus();
          field.select();
        }
      }
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, [navigate]);
}

export const themes = ["auto", "light", "dark"] as const;
export const themeNames: Record<(typeof themes)[number], Key> = { auto: "theme.auto", light: "theme.light", dark: "theme.dark" };

function Switches() {
  const t = useT();
  const mode = useStore(timeMode);
  const lang = useStore(language);
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  return (
    <>
      <Menu>
        <Menu.Target>
          <ActionIcon variant="subtle" color="gray" size="lg" aria-label={t("switch.time")} title={t("switch.time")}>
            <Clock size={19} aria-hidden />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.RadioGroup value={mode} onChange={(v) => timeMode.set(v as typeof mode)}>
            <Menu.RadioItem value="local">{t("time.local")}</Menu.RadioItem>
            <Menu.RadioItem value="utc">UTC</Menu.RadioItem>
            <Menu.RadioItem value="relative">{t("time.relative")}</Menu.RadioItem>
          </Menu.RadioGroup>
        </Menu.Dropdown>
      </Menu>
      <Menu>
        <Menu.Target>
          <ActionIcon variant="subtle" color="gray" size="lg" aria-label={t("switch.theme")} title={t("switch.theme")}>
            <SunMoon size={19} aria-hidden />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.RadioGroup value={colorScheme} onChange={(v) => setColorScheme(v as typeof colorScheme)}>
            {themes.map((theme) => (
              <Menu.RadioItem key={theme} value={theme}>
                {t(themeNames[theme])}
              </Menu.RadioItem>
            ))}
          </Menu.RadioGroup>
        </Menu.Dropdown>
      </Menu>
      <Menu>
        <Menu.Target>
          <ActionIcon variant="subtle" color="gray" size="lg" aria-label={`Language · 语言`} title="Language · 语言">
            <Languages size={19} aria-hidden />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.RadioGroup value={lang} onChange={(v) => language.set(v as typeof lang)}>
            <Menu.RadioItem value="en">English</Menu.RadioItem>
            <Menu.RadioItem value="zh-CN">简体中文</Menu.RadioItem>
          </Menu.RadioGroup>
        </Menu.Dropdown>
      </Menu>
    </>
  );
}

function UserMenu() {
  const t = useT();
  const { me } = useStore(session);
  const go = useGo();
  if (!me) return null;
  return (
    <Menu position="bottom-end">
      <Menu.Target>
        <Button
          variant="subtle"
          color="gray"
          px={8}
          leftSection={<UserRound size={18} aria-hidden />}
          aria-label={t("user.menu", { name: me.username })}
        >
          <Text span className="tw-cut tw-wide" maw={160}>
            {me.username}
          </Text>
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>
          {me.username} {me.admin && <Badge size="xs">{t("user.admin")}</Badge>}
        </Menu.Label>
        <Menu.Item component={Link} to="/settings" leftSection={<Settings size={16} aria-hidden />}>
          {t("nav.settings")}
        </Menu.Item>
        <Menu.Item
          leftSection={<LogOut size={16} aria-hidden />}
          onClick={async () => {
            await logOut();
            queryClient.clear();
            go({ to: "/login" });
          }}
        >
          {t("user.logout")}
        </Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}

/** What is wrong between this browser and the node, or with the cluster as a whole, in one line each over the page. */
function Condition() {
  const t = useT();
  const { reachable, skew } = useStore(connection);
  const { me } = useStore(session);
  const path = useRouterState({ select: (s) => s.location.pathname });
  // Whom it concerns may see it; the others would only be refused.
  const cluster = useQuery({ ...clusterQuery, retry: false, enabled: me?.admin ?? false });
  const lines: string[] = [];
  if (!reachable) lines.push(t("condition.unreachable"));
  else if (cluster.data && !cluster.data.quorum.available && !/\/(overview|replication)$/.test(path))
    for (const f of findings(cluster.data)) if (f.key === "health.quorum") lines.push(t(f.key, f.values));
  const others = (cluster.data?.brokers ?? []).flatMap((b) => {
    const url = consoleOf(b.http_address, window.location, window.location.pathname + window.location.search);
    return url && new URL(url).host !== window.location.host && b.state === "online" ? [{ id: b.id, url }] : [];
  });
  if (Math.abs(skew) > 60_000) lines.push(t("condition.skew", { skew: duration(Math.round(Math.abs(skew) / 60_000) * 60_000) }));
  return (
    <div role="status">
      {lines.map((line) => (
        <Alert key={line} color="yellow" variant="light" mb="sm" styles={{ message: { color: "inherit" } }}>
          {line}
        </Alert>
      ))}
      {!reachable && others.length > 0 && (
        <Text size="sm" mb="sm">
          {t("condition.others")}{" "}
          {others.map(({ id, url }) => (
            <a key={id} href={url} className="tw-plain" style={{ marginInlineEnd: 12 }}>
              {t("node.console", { node: id })}
            </a>
          ))}
        </Text>
      )}
    </div>
  );
}

export function Shell() {
  const t = useT();
  const info = useQuery(infoQuery);
  const { state } = useStore(session);
  const [navOpen, nav] = useDisclosure(false);
  const [palette, setPalette] = useState(false);
  const [keys, setKeys] = useState(false);
  const path = useRouterState({ select: (s) => s.location.pathname });
  const go = useGo();
  useGoKeys();
  useHotkeys([["mod+K", () => setPalette(true), { preventDefault: true }]], []);
  useHotkeys([["shift+?", () => setKeys(true)]]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the menu closes when the page changes
  useEffect(() => nav.close(), [path]);
  useEffect(() => {
    if (state === "out") go({ to: "/login" });
  }, [state, go]);
  const features = info.data?.features;
  const shown = pages.filter((p) => !p.feature || !features || features.includes(p.feature));
  return (
    <>
      <a className="tw-skip" href="#main">
        {t("nav.skip")}
      </a>
      <AppShell
        header={{ height: 56 }}
        navbar={{ width: 220, breakpoint: "sm", collapsed: { mobile: !navOpen } }}
        padding={{ base: "sm", sm: "lg" }}
      >
        <AppShell.Header>
          <Group h="100%" px="md" justify="space-between" wrap="nowrap" gap="xs">
            <Group gap="sm" wrap="nowrap">
              <Burger opened={navOpen} onClick={nav.toggle} hiddenFrom="sm" size="sm" aria-label={t("nav.menu")} aria-expanded={navOpen} />
              <Link to="/overview" className="tw-brand">
                <Logo />
                <span className="tw-wide">Tidewire</span>
              </Link>
            </Group>
            <Group gap={4} wrap="nowrap">
              <Button
                variant="default"
                size="sm"
                leftSection={<Search size={16} aria-hidden />}
                rightSection={
                  <Kbd size="xs" className="tw-wide">
                    Ctrl K
                  </Kbd>
                }
                onClick={() => setPalette(true)}
                title={t("palette.open")}
              >
                <span className="tw-wide">{t("palette.search")}</span>
              </Button>
              <Switches />
              <UserMenu />
            </Group>
          </Group>
        </AppShell.Header>
        <AppShell.Navbar p="sm" aria-label={t("nav.main")}>
          <AppShell.Section grow component={ScrollArea}>
            <Stack gap={2}>
              {shown.map(({ to, label, icon: Icon }) => (
                <Link key={to} to={to} className="tw-nav">
                  <Icon size={18} aria-hidden />
                  {t(label)}
                </Link>
              ))}
            </Stack>
          </AppShell.Section>
          <AppShell.Section>
            <Text size="xs" c="dimmed" px="sm">
              {info.data ? `Tidewire ${info.data.version}` : ""}
            </Text>
          </AppShell.Section>
        </AppShell.Navbar>
        <AppShell.Main id="main" tabIndex={-1} style={{ outline: "none" }}>
          <Condition />
          <Outlet />
        </AppShell.Main>
      </AppShell>
      <Suspense fallback={null}>
        {palette && <Palette close={() => setPalette(false)} features={features} />}
        {keys && <Keys close={() => setKeys(false)} />}
        {state === "expired" && <LoginAgain />}
      </Suspense>
    </>
  );
}

export function Logo({ size = 26 }: { size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="7" fill="#0b6e8f" />
      <path d="M5 13c4-5 7-5 11 0s7 5 11 0M5 21c4-5 7-5 11 0s7 5 11 0" fill="none" stroke="#fff" strokeWidth="3" strokeLinecap="round" />
    </svg>
  );
}

export const navPages = pages;
