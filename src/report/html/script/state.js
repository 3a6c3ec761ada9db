// What is looked at, and its mirror in the address: a link shows another reader
// the same. Parts that are as they begin are left out of it.
const initial = {
  iteration: D.first, tensor: -1, find: '', role: '', verdict: culprits.size ? 'diverged' : '',
  only: '',
};
const state = { ...initial };
const drawers = []; // called with the names of what changed

const readAddress = () => {
  const read = { ...initial };
  if (!location.hash.includes('=')) return read;
  for (const part of location.hash.slice(1).split('&')) {
    const cut = part.indexOf('=');
    const name = part.slice(0, cut);
    let text;
    try {
      if (name === 'tensor') {
        // Written by hand or by another encoder: read it and write it as we do.
        const key = part.slice(cut + 1).split('/')
          .map((one) => encodeURIComponent(decodeURIComponent(one))).join('/');
        read.tensor = byKey.get(key) ?? -1;
        continue;
      }
      text = decodeURIComponent(part.slice(cut + 1));
    } catch {
      continue; // not percent-encoded
    }
    if (name === 'iteration') {
      if (D.its.includes(+text)) read.iteration = +text;
    } else if (['find', 'role', 'verdict', 'only'].includes(name)) {
      read[name] = text;
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
const go = (changes) => {
  const opens = 'tensor' in changes && changes.tensor !== state.tensor;
  if (opens && changes.tensor >= 0) changes.iteration = iterationOf(changes.tensor);
  const next = addressOf({ ...state, ...changes });
  history[opens ? 'pushState' : 'replaceState'](null, '', next);
  update(changes);
};
