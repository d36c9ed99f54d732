import { Kbd, Table } from "@mantine/core";
import { type Key, useT } from "../i18n";
import { Dialog } from "../parts/dialog";

const rows: [string, Key][] = [
  ["Ctrl K", "keys.palette"],
  ["g t", "keys.topics"],
  ["g o", "keys.overview"],
  ["g c", "keys.groups"],
  ["g n", "keys.nodes"],
  ["g r", "keys.replication"],
  ["g e", "keys.reassignments"],
  ["g a", "keys.access"],
  ["/", "keys.search"],
  ["j k", "keys.move"],
  ["Enter", "keys.open"],
  ["← →", "keys.records"],
  ["Space", "keys.pause"],
  ["Esc", "keys.close"],
  ["?", "keys.sheet"],
];

export default function Keys({ close }: { close: () => void }) {
  const t = useT();
  return (
    <Dialog close={close} title={t("keys.title")}>
      <Table>
        <Table.Tbody>
          {rows.map(([keys, label]) => (
            <Table.Tr key={label}>
              <Table.Td w={110}>
                <Kbd>{keys}</Kbd>
              </Table.Td>
              <Table.Td>{t(label)}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Dialog>
  );
}
