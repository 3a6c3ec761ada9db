// Modules as a tree by the parts of their names, in the order in which the
// forward reaches them; parameters stand below their module.
const ITERATION_MARK = '\u0000'; // before what is of the iteration as a whole
const makeNode = (label, path, seen) => ({
  label, path, seen, kids: new Map(), list: [], own: [], all: [], first: Infinity,
  stated: [], allStated: [], parameter: false, depth: 0, up: null,
});
const kidOf = (node, part, path, seen) => {
  if (!node.kids.has(part)) {
    node.kids.set(part, makeNode(part.replace(ITERATION_MARK, ''), path, seen));
  }
  return node.kids.get(part);
};
const partsOf = (fqn, role) => {
  if (ofIteration(role)) return [ITERATION_MARK + role];
  return fqn === '' ? [] : fqn.split('.');
};
const root = makeNode('(model)', '', -1);
for (let i = 0; i < N; i++) {
  const role = roleOf(i);
  const parts = partsOf(fqnOf(i), role);
  let node = root;
  parts.forEach((part, depth) => {
    node = kidOf(node, part, parts.slice(0, depth + 1).join('.'), i);
    if (passOf(i) === 'forward' && ['input', 'output', 'data', 'loss'].includes(role)) {
      node.first = Math.min(node.first, i);
    }
  });
  node.own.push(i);
  if (ofParameter(role)) node.parameter = true;
}

// What runs say of their settings has no tensor: it stands at its own name, as
// far as there are rows for it.
const stated = D.stated.map(([place, fqn, iteration, column, role, letters]) =>
  ({ place, fqn, iteration, column, role, letters }));
for (const one of stated) {
  const parts = partsOf(one.fqn, one.role);
  let node = root;
  parts.forEach((part, depth) => {
    node = kidOf(node, part, parts.slice(0, depth + 1).join('.'), N);
  });
  node.stated.push(one);
  if (ofParameter(one.role)) node.parameter = true;
}

// A list of layers has no tensors of its own, nor has a box around one module:
// what is in them stands in their place.
const standsForOthers = (node) => !node.own.length && !node.stated.length && node.kids.size > 0 &&
  (node.kids.size === 1 || [...node.kids.keys()].every((part) => /^\d+$/.test(part)));
const withoutEmpty = (kids) => kids.flatMap((kid) => {
  if (!standsForOthers(kid)) return [kid];
  const inner = [...kid.kids.values()];
  for (const one of inner) one.label = `${kid.label}.${one.label}`;
  return withoutEmpty(inner);
});
const rankOf = (node) => {
  if (node.path[0] !== ITERATION_MARK) return node.first;
  return node.label === 'data' ? -1 : Number.MAX_VALUE;
};
const arrange = (node, depth) => {
  node.list = withoutEmpty([...node.kids.values()]).sort((a, b) =>
    a.parameter - b.parameter || (rankOf(a) < rankOf(b) ? -1 : rankOf(a) > rankOf(b) ? 1 : 0) ||
    a.seen - b.seen);
  node.all = node.own.slice();
  node.allStated = node.stated.slice();
  for (const kid of node.list) {
    kid.depth = depth;
    kid.up = node;
    arrange(kid, depth + 1);
    for (const i of kid.all) node.all.push(i);
    node.allStated.push(...kid.allStated);
  }
};
arrange(root, 1);

const opened = new Set([root]);
const holds = (node, set) => node.all.some((i) => set.has(i));
const openTo = (depth) => {
  opened.clear();
  opened.add(root);
  const walk = (node) => {
    for (const kid of node.list) {
      if (kid.depth <= depth) opened.add(kid);
      walk(kid);
    }
  };
  walk(root);
};
const openAt = (node, set) => {
  for (const kid of node.list) {
    if (!kid.parameter && (kid.allStated.length || holds(kid, set))) {
      opened.add(kid);
      openAt(kid, set);
    }
  }
};
// Where the faults are, and the rest closed.
const openFaults = () => {
  openTo(root.list.filter((kid) => kid.list.length).length < 5 ? 1 : 0);
  for (const kid of root.list) if (kid.list.length > 80) opened.delete(kid);
  openAt(root, culprits);
};
