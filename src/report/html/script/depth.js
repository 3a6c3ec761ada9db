// Error and bound over the order of execution: one strip a leg over one common
// axis. Plain SVG paths, a path for all dots of a colour: faster than a drawing
// library's element for each, and nothing to load.
const PHASES = [
  ['forward', ['output', 'loss']],
  ['backward', ['grad_output', 'grad_input']],
  ['local gradients', ['grad_local']],
  ['reduced gradients', ['grad_reduced', 'grad_norm']],
];
const WIDE = 1190;
const LEFT = 46;
const RIGHT = 8;
const MOST_POINTS = 3000; // more stand on each other's pixels
let zoom = null; // [first, last] of the points of the iteration
let cursorPoint = -1;
let depthView = null;

const legAt = (i, leg) => {
  for (let j = legStart[i]; j < legStart[i + 1]; j++) if (D.kinds[L.kind[j]][0] === leg) return j;
  return -1;
};

// Tensors of the iteration that have legs, by phase, and which phase each is of.
const pointsOf = (iteration) => {
  const byPhase = PHASES.map(() => []);
  for (let i = 0; i < N; i++) {
    if (iterationOf(i) !== iteration || !T.n[i]) continue;
    const phase = PHASES.findIndex(([, roles]) => roles.includes(roleOf(i)));
    if (phase >= 0) byPhase[phase].push(i);
  }
  return byPhase.flatMap((list, phase) => list.map((i) => ({ i, phase })));
};

// Of neighbours that would share a pixel the worst.
const thinned = (points) => {
  const per = Math.ceil(points.length / MOST_POINTS);
  if (per <= 1) return [points, 1];
  const kept = [];
  for (let k = 0; k < points.length;) {
    let worst = points[k];
    let end = k + 1;
    for (; end < Math.min(k + per, points.length) && points[end].phase === worst.phase; end++) {
      const [a, b] = [points[end].i, worst.i];
      if (culprits.has(a) || T.sev[a] > T.sev[b] ||
          (T.sev[a] === T.sev[b] && T.h[a] > T.h[b])) worst = points[end];
    }
    kept.push(worst);
    k = end;
  }
  return [kept, per];
};

const layerOf = (i) => /^(?:[^.]+\.)*?(\d+)(?=\.|$)/.exec(fqnOf(i))?.[1] ?? '';
const at = (x) => x.toFixed(1);

const horizontal = (points) => {
  const gaps = new Array(points.length).fill(0);
  for (let k = 1; k < points.length; k++) {
    gaps[k] = gaps[k - 1] + (points[k].phase !== points[k - 1].phase ? 8 : 0);
  }
  const last = points.length ? gaps[points.length - 1] : 0;
  const step = (WIDE - LEFT - RIGHT) / (points.length + last || 1);
  return { step, x: (k) => LEFT + (k + 0.5 + gaps[k]) * step };
};

const verticalOf = (js, top, bottom) => {
  let least = Infinity;
  let most = 0;
  for (const j of js) {
    if (j < 0) continue;
    for (const v of [value(L.e[j]), value(L.b[j]), value(L.z[j])]) {
      if (v > 0 && v < Infinity) {
        least = Math.min(least, v);
        most = Math.max(most, v);
      }
    }
  }
  if (most === 0) return null;
  const low = Math.floor(Math.log10(least));
  const high = Math.max(low + 1, Math.ceil(Math.log10(most)));
  const floor = bottom + 8; // of what is equal
  const y = (v) => {
    if (!(v > 0)) return Number.isNaN(v) ? top : floor;
    return top + (bottom - 12 - top) * (high - Math.min(high, Math.log10(v))) / (high - low);
  };
  return { low, high, y };
};

const drawAxes = (s, vertical, leg, top) => {
  const { low, high, y } = vertical;
  for (let k = low; k <= high; k += Math.max(1, Math.round((high - low) / 4))) {
    s.append(svg('path', { class: 'grid', d: `M${LEFT} ${at(y(10 ** k))}H${WIDE - RIGHT}` }),
      svg('text', { x: LEFT - 6, y: y(10 ** k) + 3.5, 'text-anchor': 'end' }, '1e' + k));
  }
  s.append(svg('text', { x: LEFT - 6, y: y(0) + 3.5, 'text-anchor': 'end' }, '= 0'),
    svg('text', { class: 'leg', x: LEFT, y: top - 5 }, D.legs[leg]));
};

const drawPhases = (s, points, { x, step }, top, bottom, withWords) => {
  for (let from = 0; from < points.length;) {
    let end = from + 1;
    while (end < points.length && points[end].phase === points[from].phase) end++;
    if (from) {
      s.append(svg('path', { class: 'phase', d: `M${at(x(from) - 4 * step)} ${top}V${bottom}` }));
    }
    const name = PHASES[points[from].phase][0];
    const room = x(end - 1) - x(from);
    if (withWords && (room > 60 || end === points.length)) {
      s.append(svg('text', { x: (x(from) + x(end - 1)) / 2, y: 11,
        'text-anchor': room > 60 ? 'middle' : 'end' },
      name + (name === 'backward' && room > 160 ? ' (last layer first)' : '')));
    }
    from = end;
  }
};

const drawLayers = (s, points, { x }, top) => {
  let before = '';
  let lastX = -99;
  points.forEach(({ i }, k) => {
    const layer = layerOf(i);
    if (layer && layer !== before && x(k) - lastX > 26) {
      const words = lastX < 0 ? 'layer ' + layer : layer;
      s.append(svg('path', { class: 'phase', d: `M${at(x(k))} ${top - 2}v4` }),
        svg('text', { x: x(k), y: top + 12 }, words));
      lastX = x(k) + (lastX < 0 ? 16 : 0);
    }
    before = layer;
  });
};

const drawValues = (s, points, js, { x }, { y }) => {
  let band = '';
  let bound = '';
  const dots = { '': '', out: '', eq: '' };
  let area = [];
  let isBound = false;
  const closeArea = () => {
    if (area.length) {
      band += `M${at(area[0][0])} ${at(y(0))}` +
        area.map(([px, py]) => `L${at(px)} ${at(py)}`).join('') +
        `L${at(area[area.length - 1][0])} ${at(y(0))}Z`;
    }
    area = [];
  };
  points.forEach(({ phase }, k) => {
    if (k && points[k - 1].phase !== phase) {
      closeArea();
      isBound = false;
    }
    const j = js[k];
    if (j < 0) {
      isBound = false;
      return;
    }
    area.push([x(k), y(value(L.z[j]))]);
    const limit = value(L.b[j]);
    if (limit > 0 && D.kinds[L.kind[j]][2]) {
      bound += `${isBound ? 'L' : 'M'}${at(x(k))} ${at(y(limit))}`;
      isBound = true;
    } else {
      isBound = false;
    }
    const error = value(L.e[j]);
    const isOut = D.kinds[L.kind[j]][2] && legHeadroom(j) > 1;
    dots[error === 0 ? 'eq' : isOut ? 'out' : ''] += `M${at(x(k))} ${at(y(error))}h.01`;
  });
  closeArea();
  s.append(svg('path', { class: 'band', d: band }), svg('path', { class: 'bnd', d: bound }));
  for (const kind of ['eq', '', 'out']) {
    s.append(svg('path', { class: 'dot ' + kind, d: dots[kind] }));
  }
  points.forEach(({ i }, k) => {
    if (js[k] < 0 || !(culprits.has(i) || i === state.tensor)) return;
    s.append(svg('circle', { class: i === state.tensor ? 'here chosen' : 'here', cx: x(k),
      cy: y(value(L.e[js[k]])), r: 6 }));
  });
};

const pointWords = (k, leg) => {
  const { i } = depthView.points[k];
  const legs = leg === undefined ? depthView.legs : [leg];
  return [tensorWords(i), ...legs.flatMap((one) => {
    const j = legAt(i, one);
    return j < 0 ? [] : [`${D.legs[one]}: error ${errorWords(value(L.e[j]))}, bound ` +
      `${errorWords(value(L.b[j]))}, noise ${errorWords(value(L.z[j]))}`];
  })].join('\n');
};

const moveCursor = (k) => {
  cursorPoint = k;
  for (const { line, top, bottom } of depthView.cursors) {
    line.setAttribute('d', k < 0 ? '' : `M${at(depthView.x(k))} ${top}V${bottom}`);
  }
};

const drawDepth = () => {
  const box = $('plots');
  const all = pointsOf(state.iteration);
  const [points, per] = thinned(zoom ? all.slice(zoom[0], zoom[1] + 1) : all);
  const across = horizontal(points);
  const legs = D.legs.map((_, leg) => leg).filter((leg) =>
    points.some(({ i }) => legAt(i, leg) >= 0));
  depthView = { points, per, legs, cursors: [], x: across.x, from: zoom ? zoom[0] : 0 };
  box.replaceChildren();
  legs.forEach((leg, place) => {
    const isFirst = place === 0;
    const isLast = place === legs.length - 1;
    const top = isFirst ? 30 : 16;
    const bottom = top + 96;
    const js = points.map(({ i }) => legAt(i, leg));
    const vertical = verticalOf(js, top, bottom);
    if (!vertical) return;
    const s = svg('svg', { class: 'strip', role: 'img',
      viewBox: `0 0 ${WIDE} ${bottom + (isLast ? 32 : 14)}`,
      'aria-label': `error and bound in leg ${D.legs[leg]}` });
    drawAxes(s, vertical, leg, top);
    drawPhases(s, points, across, top, bottom, isFirst);
    if (isLast) drawLayers(s, points, across, bottom + 16);
    drawValues(s, points, js, across, vertical);
    const line = svg('path', { class: 'cursor', d: '' });
    depthView.cursors.push({ line, top, bottom });
    s.append(line);
    s.dataset.leg = leg;
    box.append(s);
  });
  if (!box.children.length) {
    box.append(el('p', { className: 'muted', textContent: D.legsOfClean || !N ?
      'No leg has errors or bounds to draw in this iteration.' :
      'Nothing is out of bounds here, and legs of clean tensors are left out of a page of this ' +
      'size: they are in result.json.' }));
  }
  drawDepthTools(all.length);
};

const drawDepthTools = (total) => {
  const tools = $('depthtools');
  const phases = [...new Set(pointsOf(state.iteration).map(({ phase }) => phase))];
  const look = (range) => () => { zoom = range; cursorPoint = -1; drawDepth(); };
  const parts = phases.map((phase) => {
    const all = pointsOf(state.iteration);
    const first = all.findIndex((point) => point.phase === phase);
    const last = all.length - 1 - [...all].reverse().findIndex((point) => point.phase === phase);
    const made = button(PHASES[phase][0], look([first, last]));
    made.ariaPressed = String(Boolean(zoom) && zoom[0] === first && zoom[1] === last);
    return made;
  });
  const whole = button('All', look(null));
  whole.ariaPressed = String(!zoom);
  const note = depthView.per > 1 ? `each dot the worst of ${depthView.per}: drag to look closer` :
    zoom ? `${count(depthView.points.length)} of ${count(total)} tensors` : '';
  tools.replaceChildren(whole, ...parts, el('span', { className: 'muted', textContent: note }));
  tools.hidden = !total;
};

const depthEvents = () => {
  const box = $('plots');
  box.tabIndex = 0;
  box.setAttribute('role', 'application');
  box.setAttribute('aria-label', 'Error over depth. Left and right move from tensor to tensor, ' +
    'Enter opens one.');
  const nearest = (event) => {
    const frame = box.querySelector('svg').getBoundingClientRect();
    const px = (event.clientX - frame.left) * WIDE / frame.width;
    let best = -1;
    depthView.points.forEach((_, k) => {
      if (best < 0 || Math.abs(depthView.x(k) - px) < Math.abs(depthView.x(best) - px)) best = k;
    });
    return best;
  };
  let pressed = -1;
  box.addEventListener('pointerdown', (event) => {
    if (event.target.closest('svg')) pressed = nearest(event);
  });
  box.addEventListener('pointermove', (event) => {
    const s = event.target.closest('svg');
    if (!s) return;
    const k = nearest(event);
    if (k < 0) return;
    moveCursor(k);
    showTip(pointWords(k, +s.dataset.leg), event.clientX, event.clientY);
  });
  box.addEventListener('pointerup', (event) => {
    const from = pressed;
    pressed = -1;
    if (from < 0 || !event.target.closest('svg')) return;
    const to = nearest(event);
    hideTip();
    if (Math.abs(to - from) < 3) return go({ tensor: depthView.points[to].i });
    const { from: start, per } = depthView;
    zoom = [start + Math.min(from, to) * per, start + (Math.max(from, to) + 1) * per - 1];
    drawDepth();
  });
  box.addEventListener('pointerleave', () => {
    pressed = -1;
    hideTip();
    if (depthView) moveCursor(-1);
  });
  box.addEventListener('keydown', (event) => {
    const last = depthView.points.length - 1;
    if (last < 0) return;
    const moves = { ArrowLeft: cursorPoint - 1, ArrowRight: cursorPoint + 1, Home: 0, End: last,
      PageUp: cursorPoint - 20, PageDown: cursorPoint + 20 };
    if (event.key === 'Enter' && cursorPoint >= 0) {
      event.preventDefault();
      return go({ tensor: depthView.points[cursorPoint].i });
    }
    if (!(event.key in moves)) return;
    event.preventDefault();
    moveCursor(Math.max(0, Math.min(last, moves[event.key])));
    $('readout').textContent = pointWords(cursorPoint);
  });
};
