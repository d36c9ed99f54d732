import { Alert, Anchor, Button, Center, Group, Paper, PasswordInput, Stack, Text, TextInput, Title } from "@mantine/core";
import { useForm } from "@mantine/form";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { api, logIn, take } from "../api/client";
import { loginSearch, usePageSearch } from "../app/search";
import { session } from "../app/session";
import { Logo } from "../app/shell";
import { useT } from "../i18n";
import { Link } from "../parts/link";
import { Failure } from "../parts/states";

export function SetupPage() {
  const t = useT();
  const navigate = useNavigate();
  const [search] = usePageSearch(loginSearch);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const state = useQuery({ queryKey: ["setup"], queryFn: () => take(api.GET("/v1/setup")) });
  useEffect(() => {
    document.title = `${t("setup.title")} · Tidewire`;
  }, [t]);
  const form = useForm({
    initialValues: { token: search.token ?? "", username: "admin", password: "" },
    validate: { password: (v) => (v.length < 8 ? t("user.passwordShort") : null), token: (v) => (v ? null : t("setup.noToken")) },
  });
  const submit = form.onSubmit(async ({ token, username, password }) => {
    setBusy(true);
    setError(null);
    try {
      await take(api.POST("/v1/setup", { body: { token, username, password } }));
      session.set({ state: "in", me: await logIn(username, password) });
      await navigate({ to: "/overview" });
    } catch (problem) {
      setError(problem);
    } finally {
      setBusy(false);
    }
  });
  return (
    <Center component="main" mih="100vh" p="md">
      <Paper withBorder p="xl" w={420} maw="100%" radius="md">
        <Stack>
          <Group gap="sm">
            <Logo size={36} />
            <Title order={1} size="h3">
              {t("setup.title")}
            </Title>
          </Group>
          {state.data && !state.data.required ? (
            <Alert color="gray" styles={{ message: { color: "inherit" } }}>
              {t("setup.done")}{" "}
              <Anchor component={Link} to="/login" inherit>
                {t("login.title")}
              </Anchor>
            </Alert>
          ) : (
            <form onSubmit={submit} aria-label={t("setup.title")}>
              <Stack>
                <Text size="sm">{t("setup.text")}</Text>
                {!search.token && (
                  <TextInput
                    label={t("setup.token")}
                    description={t("setup.tokenWhere")}
                    autoComplete="off"
                    {...form.getInputProps("token")}
                  />
                )}
                <TextInput
                  label={t("login.username")}
                  autoComplete="username"
                  required
                  withAsterisk={false}
                  maxLength={255}
                  {...form.getInputProps("username")}
                />
                <PasswordInput
                  label={t("login.password")}
                  description={t("user.passwordRule")}
                  autoComplete="new-password"
                  visibilityToggleButtonProps={{ "aria-label": t("login.show") }}
                  {...form.getInputProps("password")}
                />
                {error ? <Failure error={error} /> : null}
                <Button type="submit" loading={busy}>
                  {t("setup.submit")}
                </Button>
              </Stack>
            </form>
          )}
        </Stack>
      </Paper>
    </Center>
  );
}
