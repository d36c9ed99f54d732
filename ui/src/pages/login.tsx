import { Anchor, Center, Group, Paper, Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useRouter } from "@tanstack/react-router";
import { useEffect } from "react";
import { api, take, whoAmI } from "../api/client";
import { queryClient } from "../app/queries";
import { loginSearch, usePageSearch } from "../app/search";
import { mayBeLoggedIn, session } from "../app/session";
import { Logo } from "../app/shell";
import { useT } from "../i18n";
import { prefix } from "../lib/prefix";
import { Link } from "../parts/link";
import { LoginForm } from "../parts/loginForm";

/** Where to go after the login: a page of this console, never another address. */
export function destination(to: string | undefined): string {
  if (!to?.startsWith("/") || to.startsWith("//") || to.includes("\\")) return "/overview";
  const base = `${prefix}/ui`;
  const path = to.startsWith(base) ? to.slice(base.length) : to;
  return path === "" || path === "/" || path.startsWith("/login") ? "/overview" : path;
}

export function LoginPage() {
  const t = useT();
  const router = useRouter();
  const navigate = useNavigate();
  const [search] = usePageSearch(loginSearch);
  const setup = useQuery({ queryKey: ["setup"], queryFn: () => take(api.GET("/v1/setup")) });
  const target = destination(search.to);
  useEffect(() => {
    document.title = `${t("login.title")} · Tidewire`;
    if (session.get().state === "unknown" && mayBeLoggedIn())
      void whoAmI()
        .then((me) => {
          if (!me) return;
          session.set({ state: "in", me });
          router.history.push(`${prefix}/ui${target}`);
        })
        .catch(() => undefined);
  }, [router, target, t]);
  return (
    <Center component="main" mih="100vh" p="md">
      <Paper withBorder p="xl" w={380} maw="100%" radius="md">
        <Stack>
          <Group gap="sm">
            <Logo size={36} />
            <Title order={1} size="h3">
              {t("login.title")}
            </Title>
          </Group>
          {search.to && (
            <Text size="sm" c="dimmed">
              {t("login.returns")}
            </Text>
          )}
          <LoginForm
            username=""
            onDone={(me) => {
              queryClient.clear();
              session.set({ state: "in", me });
              if (search.to) router.history.push(`${prefix}/ui${target}`);
              else void navigate({ to: "/overview" });
            }}
          />
          {setup.data?.required && (
            <Text size="sm">
              {t("login.setup")}{" "}
              <Anchor component={Link} to="/setup" inherit>
                {t("setup.title")}
              </Anchor>
            </Text>
          )}
        </Stack>
      </Paper>
    </Center>
  );
}
