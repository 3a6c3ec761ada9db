// The data of the page: columns of numbers and tables of strings, as
// packed_data.h describes them. Names only ever become text nodes: nothing in
// these files parses HTML.
const $ = (id) => document.getElementById(id);
const D = JSON.parse($('data').textContent);

const unpack = (text, count) => {
  if (text[0] === '=') return new Array(count).fill(+text.slice(1));
  const bytes = Uint8Array.from(atob(text.slice(1)), (c) => c.charCodeAt(0));
  if (text[0] === 'B') return bytes;
  return text[0] === 'H' ? new Uint16Array(bytes.buffer) : new Uint32Array(bytes.buffer);
};
const unpackAll = (columns, count) =>
  Object.fromEntries(Object.entries(columns).map(([name, text]) => [name, unpack(text, count)]));

const OUT = 9; // the mildest severity that is out of bounds
const MUST_BE_EQUAL = 12; // and is not, or is not finite: no bound says how far
const NOT_NUMBERS = new Set([0, 1, 2, 7, 8]); // severities that have no headroom
const N = D.n;
const NONE = { fqn: [], it: [], slot: [], v: [], sev: [], h: [], leg: [], isev: [], ih: [],
  why: [], ranks: [], form: [], cause: [], copies: [], n: [] };
const T = N ? unpackAll(D.t, N) : NONE;
const legStart = new Uint32Array(N + 1); // of each tensor its first leg
for (let i = 0; i < N; i++) legStart[i + 1] = legStart[i] + T.n[i];
const L = legStart[N] ? unpackAll(D.l, legStart[N]) : { kind: [], e: [], b: [], h: [], z: [] };

const names = [];
for (const coded of D.names) {
  const cut = coded.indexOf('~');
  const same = +coded.slice(0, cut);
  const before = names.length ? names[names.length - 1].split('.') : [];
  names.push([...before.slice(0, same), coded.slice(cut + 1)].join('.'));
}
const oddNames = new Set(D.odd); // that are not shown as they are

const value = (packed) => {
  if (packed === 0) return null;
  if (packed === 1) return 0;
  if (packed === 65534) return NaN;
  return packed === 65535 ? Infinity : 10 ** ((packed - 2) * 40 / 65531 - 20);
};

// Of the test that decides in a leg, which mostly is error / bound.
const legHeadroom = (j) => (L.h[j] ? value(L.h[j]) : (value(L.e[j]) ?? 0) / (value(L.b[j]) ?? 1));

const fqnOf = (i) => names[T.fqn[i]];
const shownName = (i) => fqnOf(i) || '(model)';
const iterationOf = (i) => D.its[T.it[i]];
const slotOf = (i) => D.slots[T.slot[i]];
const roleOf = (i) => slotOf(i)[0];
const argOf = (i) => slotOf(i)[1];
const passOf = (i) => slotOf(i)[2];
const callOf = (i) => slotOf(i)[3];
const columnOf = (i) => slotOf(i)[4];
const verdictOf = (i) => D.verdicts[T.v[i]];
const legNameOf = (i) => (T.leg[i] ? D.legs[T.leg[i] - 1] : '');
const ofIteration = (role) => role === 'data' || role === 'loss' || role === 'grad_norm';
const ofParameter = (role) =>
  ['param', 'grad_local', 'grad_reduced', 'param_updated', 'optim_state'].includes(role);

// Of equal keys, which only hostile names have, the later ones get a number.
const keys = [];
const byKey = new Map();
for (let i = 0; i < N; i++) {
  let key = [fqnOf(i), roleOf(i), iterationOf(i), callOf(i), argOf(i), passOf(i)]
    .map((part) => encodeURIComponent(part)).join('/');
  if (byKey.has(key)) key += '/' + i;
  keys.push(key);
  byKey.set(key, i);
}

// What a tensor is to the faults that were found.
const culprits = new Set(D.culprits.filter((i) => i >= 0));
const knowsCauses = D.causes.some(([culprit]) => culprit >= 0);
const sameFault = new Set();
const downstream = new Set();
for (let i = 0; i < N; i++) {
  if (culprits.has(i)) continue;
  if (knowsCauses) {
    const as = D.causes[T.cause[i]][1];
    if (as === 'same' || as === 'first') sameFault.add(i);
    if (as === 'downstream') downstream.add(i);
  } else if (T.sev[i] >= OUT) {
    const listed = D.affected.some(([role, iteration, examples]) =>
      role === roleOf(i) && iteration === iterationOf(i) && examples.includes(fqnOf(i)));
    if (listed) sameFault.add(i);
  }
}

const modules = new Map(D.modules.map(([fqn, name, file, line]) =>
  [fqn, { name: D.classes[name], file: D.files[file], line }]));
