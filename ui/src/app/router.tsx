import { createRootRoute, createRoute, createRouter, lazyRouteComponent, Outlet, redirect } from "@tanstack/react-router";
import { whoAmI } from "../api/client";
import { readAhead } from "../api/records";
import { prefix } from "../lib/prefix";
import { RouteFailure, RoutePending } from "../parts/states";
import * as search from "./search";
import { mayBeLoggedIn, session } from "./session";
import { Shell } from "./shell";

/** Learns who is logged in, once a page load. */
async function requireLogin({ location }: { location: { href: string } }) {
  if (session.get().state === "unknown") {
    const me = mayBeLoggedIn() ? await whoAmI() : null;
    session.set(me ? { state: "in", me } : { state: "out", me: null });
  }
  if (session.get().state === "out") throw redirect({ to: "/login", search: { to: location.href, token: undefined } });
}

const root = createRootRoute({ component: Outlet, notFoundComponent: lazyRouteComponent(() => import("../pages/missing"), "Missing") });
const login = createRoute({
  getParentRoute: () => root,
  path: "/login",
  validateSearch: search.loginSearch,
  component: lazyRouteComponent(() => import("../pages/login"), "LoginPage"),
});
const setup = createRoute({
  getParentRoute: () => root,
  path: "/setup",
  validateSearch: search.loginSearch,
  component: lazyRouteComponent(() => import("../pages/setup"), "SetupPage"),
});
const app = createRoute({ getParentRoute: () => root, id: "app", beforeLoad: requireLogin, component: Shell });
const index = createRoute({
  getParentRoute: () => app,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/overview" });
  },
});

const overview = createRoute({
  getParentRoute: () => app,
  path: "/overview",
  component: lazyRouteComponent(() => import("../pages/overview"), "OverviewPage"),
});
const topics = createRoute({
  getParentRoute: () => app,
  path: "/topics",
  validateSearch: search.listSearch,
  component: lazyRouteComponent(() => import("../pages/topics"), "TopicsPage"),
});
// A topic may be called "new"; its own page is reached through /topics/new/messages.
const newTopic = createRoute({
  getParentRoute: () => app,
  path: "/topics/new",
  component: lazyRouteComponent(() => import("../pages/newTopic"), "NewTopicPage"),
});
const topic = createRoute({
  getParentRoute: () => app,
  path: "/topics/$topic",
  component: lazyRouteComponent(() => import("../pages/topic"), "TopicLayout"),
});
const topicIndex = createRoute({
  getParentRoute: () => topic,
  path: "/",
  beforeLoad: ({ params }) => {
    throw redirect({ to: "/topics/$topic/messages", params, search: {} as never });
  },
});
const messages = createRoute({
  getParentRoute: () => topic,
  path: "/messages",
  validateSearch: search.messagesSearch,
  // The records are on their way while the page is made.
  loader: ({ params, location, cause }) => {
    const { seek = "newest", decoder: _, open: __, ...asked } = search.messagesSearch(location.search as Record<string, unknown>);
    if (cause !== "enter" || seek === "live") return;
    readAhead({ ...asked, seek, topic: params.topic });
  },
  component: lazyRouteComponent(() => import("../pages/messages"), "MessagesPage"),
});
const produce = createRoute({
  getParentRoute: () => topic,
  path: "/produce",
  validateSearch: search.produceSearch,
  component: lazyRouteComponent(() => import("../pages/produce"), "ProducePage"),
});
const config = createRoute({
  getParentRoute: () => topic,
  path: "/config",
  validateSearch: search.configSearch,
  component: lazyRouteComponent(() => import("../pages/config"), "ConfigPage"),
});
const partitions = createRoute({
  getParentRoute: () => topic,
  path: "/partitions",
  validateSearch: search.partitionsSearch,
  component: lazyRouteComponent(() => import("../pages/partitions"), "PartitionsPage"),
});
const topicGroups = createRoute({
  getParentRoute: () => topic,
  path: "/groups",
  validateSearch: search.groupsSearch,
  component: lazyRouteComponent(() => import("../pages/topicGroups"), "TopicGroupsPage"),
});
const topicAccess = createRoute({
  getParentRoute: () => topic,
  path: "/access",
  component: lazyRouteComponent(() => import("../pages/topicAccess"), "TopicAccessPage"),
});
const topicMetrics = createRoute({
  getParentRoute: () => topic,
  path: "/metrics",
  validateSearch: search.metricsSearch,
  component: lazyRouteComponent(() => import("../pages/metrics"), "TopicMetricsPage"),
});
const groups = createRoute({
  getParentRoute: () => app,
  path: "/groups",
  validateSearch: search.groupsSearch,
  component: lazyRouteComponent(() => import("../pages/groups"), "GroupsPage"),
});
const group = createRoute({
  getParentRoute: () => app,
  path: "/groups/$group",
  component: lazyRouteComponent(() => import("../pages/group"), "GroupPage"),
});
const nodes = createRoute({
  getParentRoute: () => app,
  path: "/nodes",
  component: lazyRouteComponent(() => import("../pages/nodes"), "NodesPage"),
});
const node = createRoute({
  getParentRoute: () => app,
  path: "/nodes/$node",
  component: lazyRouteComponent(() => import("../pages/node"), "NodePage"),
});
const replication = createRoute({
  getParentRoute: () => app,
  path: "/replication",
  component: lazyRouteComponent(() => import("../pages/replication"), "ReplicationPage"),
});
const reassignments = createRoute({
  getParentRoute: () => app,
  path: "/reassignments",
  component: lazyRouteComponent(() => import("../pages/reassignments"), "ReassignmentsPage"),
});
const reference = createRoute({
  getParentRoute: () => app,
  path: "/api",
  validateSearch: search.apiSearch,
  component: lazyRouteComponent(() => import("../pages/reference"), "ReferencePage"),
});
const access = createRoute({
  getParentRoute: () => app,
  path: "/access",
  validateSearch: search.accessSearch,
  component: lazyRouteComponent(() => import("../pages/access"), "AccessPage"),
});
const quotas = createRoute({
  getParentRoute: () => app,
  path: "/quotas",
  component: lazyRouteComponent(() => import("../pages/quotas"), "QuotasPage"),
});
const audit = createRoute({
  getParentRoute: () => app,
  path: "/audit",
  validateSearch: search.auditSearch,
  component: lazyRouteComponent(() => import("../pages/audit"), "AuditPage"),
});
const operations = createRoute({
  getParentRoute: () => app,
  path: "/operations",
  validateSearch: search.operationsSearch,
  component: lazyRouteComponent(() => import("../pages/operations"), "OperationsPage"),
});
const metrics = createRoute({
  getParentRoute: () => app,
  path: "/metrics",
  validateSearch: search.metricsSearch,
  component: lazyRouteComponent(() => import("../pages/metrics"), "MetricsPage"),
});
const settings = createRoute({
  getParentRoute: () => app,
  path: "/settings",
  component: lazyRouteComponent(() => import("../pages/settings"), "SettingsPage"),
});
const about = createRoute({
  getParentRoute: () => app,
  path: "/about",
  component: lazyRouteComponent(() => import("../pages/about"), "AboutPage"),
});
const missing = createRoute({
  getParentRoute: () => app,
  path: "/$",
  component: lazyRouteComponent(() => import("../pages/missing"), "Missing"),
});

const tree = root.addChildren([
  login,
  setup,
  app.addChildren([
    index,
    overview,
    topics,
    newTopic,
    topic.addChildren([topicIndex, messages, produce, config, partitions, topicGroups, topicAccess, topicMetrics]),
    groups,
    group,
    nodes,
    node,
    replication,
    reassignments,
    access,
    quotas,
    audit,
    operations,
    metrics,
    settings,
    about,
    reference,
    missing,
  ]),
]);

export const router = createRouter({
  routeTree: tree,
  basepath: `${prefix}/ui`,
  parseSearch: search.parseSearch,
  stringifySearch: search.stringifySearch,
  defaultPendingComponent: RoutePending,
  defaultErrorComponent: RouteFailure,
  defaultPendingMs: 300,
  scrollRestoration: true,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
