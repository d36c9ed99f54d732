import { useQuery } from "@tanstack/react-query";
import { type Reason, useMay } from "../parts/gate";
import { clusterQuery } from "./queries";

/** Why the caller may not do something to the cluster; null where they may, or nothing is known. */
export function useMayCluster(action: string): Reason {
  const cluster = useQuery({ ...clusterQuery, retry: false });
  return useMay(cluster.data?.actions, "cluster")(action);
}
