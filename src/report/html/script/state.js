// What is looked at, and its mirror in the address: a link shows another reader
// the same. Parts that are as they begin are left out of it.
const initial = {
  iteration: D.first, tensor: -1, find: '', role: '', only: '',
  verdict: [...T.v].some((v) => D.verdicts[v] === 'diverged') ? 'diverged' : '',
};
const state = { ...initial };
const drawers = []; // called with the names of what changed

// Written by hand or by another encoder: read, and looked up as we write it.
const tensorOfKey = (key) => byKey.get(key.split('/')
  .map((part) => encodeURIComponent(decodeURIComponent(part))).join('/')) ?? -1;

const readAddress = () => {
  const read = { ...initial };
  for (const part of location.hash.slice(1).split('&')) {
    const cut = part.indexOf('=');
    if (cut < 0) continue; // of a section
    const name = part.slice(0, cut);
    try {
      if (name === 'tensor') {
        read.tensor = tensorOfKey(part.slice(cut + 1));
        continue;
      }
      const text = decodeURIComponent(part.slice(cut + 1));
      if (name === 'iteration' && D.its.includes(+text)) read.iteration = +text;
      if (['find', 'role', 'verdict', 'only'].includes(name)) read[name] = text;
    } catch {
      // Not percent-encoded.
    }
  }
  if (read.tensor >= 0) read.iteration = iterationOf(read.tensor);
  return read;
};

const addressOf = (of) => {
  const parts = of.tensor >= 0 ? ['tensor=' + keys[of.tensor]] : [];
  if (of.tensor < 0 && of.iteration !== initial.iteration) parts.push('iteration=' + of.iteration);
  for (const name of ['find', 'role', 'verdict', 'only']) {
    if (of[name] !== initial[name]) parts.push(`${name}=${encodeURIComponent(of[name])}`);
  }
  return '#' + parts.join('&');
};

const update = (changes) => {
  const changed = new Set(Object.keys(changes).filter((name) => state[name] !== changes[name]));
  Object.assign(state, changes);
  if (changed.size) for (const draw of drawers) draw(changed);
};

// Moves to another view. What is opened can be left by the browser's "back";
// what is typed replaces the address.
const go = (changes, way = 'pushState') => {
  const opens = 'tensor' in changes && changes.tensor !== state.tensor;
  if (opens && changes.tensor >= 0) changes.iteration = iterationOf(changes.tensor);
  const next = addressOf({ ...state, ...changes });
  history[opens ? way : 'replaceState'](null, '', next);
  update(changes);
};
