(() => {
  'use strict';
  const root = document.documentElement;
  root.dataset.errors = '0';
  window.addEventListener('error', () => {
    root.dataset.errors = String(Number(root.dataset.errors) + 1);
  });

  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId('data').textContent);
  const chart = byId('chart');
  const overview = byId('overview');
  const rise = byId('rise');
  const tip = byId('tip');

  const AXIS = 24;
  const MARKS = 18;
  const LANE = 14;
  const WAITING = 14;
  const FIELDS = 5;
  const LANES_MAX = 8;
  const NOBODY = 4294967295;
  const whole = Math.max(data.length, 1);
  const view = { from: 0, to: whole };
  let chosen = -1;
  let paint = {};

  // What is drawn, prepared once.
  const locks = data.locks.map((lock) => {
    const count = lock.holds.length / FIELDS;
    const lanes = new Uint8Array(count);
    const ends = [];
    let longest = 0;
    for (let i = 0; i < count; i += 1) {
      const from = lock.holds[i * FIELDS];
      const length = lock.holds[i * FIELDS + 1];
      longest = Math.max(longest, length);
      let lane = ends.findIndex((end) => end <= from);
      if (lane < 0) lane = Math.min(ends.length, LANES_MAX - 1);
      ends[lane] = Math.max(ends[lane] || 0, from + length);
      lanes[i] = lane;
    }
    const most = lock.waiting.reduce((a, b) => Math.max(a, b), 0);
    return { ...lock, count, lanes, longest, height: Math.max(ends.length, 1), most };
  });
  const targets = [...new Set(data.faults.map((fault) => fault.target))]
    .sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));
  const workers = new Set();
  for (const lock of locks) {
    for (let i = 0; i < lock.count; i += 1) workers.add(lock.holds[i * FIELDS + 2]);
  }

  // Rows from top to bottom.
  const rows = [];
  let height = AXIS;
  const addRow = (row) => {
    rows.push({ ...row, top: height });
    height += row.size;
  };
  addRow({ kind: 'findings', label: data.findings.length ? 'findings' : '', size: MARKS });
  for (const target of targets) addRow({ kind: 'faults', label: target, target, size: LANE + 4 });
  for (const lock of locks) {
    addRow({ kind: 'lock', label: lock.name, lock, size: lock.height * LANE + WAITING + 12 });
  }
  height += 6;

  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  // No worker has the colours of findings.
  const hue = (number) => (number === NOBODY ? paint.faint
    : `hsl(${70 + ((number * 97 + 140) % 250)} 55% ${paint.light})`);
  const inkOf = (finding) => ({ broken: paint.bad, allowed: paint.fair }[finding.ruling]
    || paint.accent);
  const readPaint = () => {
    paint = { light: colour('--light') };
    for (const name of ['paper', 'ink', 'faint', 'rule', 'grid', 'bad', 'fair', 'waiting', 'fault',
      'outage', 'lost', 'killed', 'accent']) {
      paint[name] = colour(`--${name}`);
    }
  };

  const prepare = (canvas, tall) => {
    const wide = canvas.clientWidth || 800;
    const scale = window.devicePixelRatio || 1;
    canvas.style.height = `${tall}px`;
    canvas.width = Math.round(wide * scale);
    canvas.height = Math.round(tall * scale);
    const pen = canvas.getContext('2d');
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, wide, tall);
    pen.font = '12px system-ui, sans-serif';
    pen.textBaseline = 'middle';
    return [pen, wide];
  };
  const margin = (wide) => Math.min(170, Math.round(wide * 0.25));
  const place = (at, wide) => {
    const left = margin(wide);
    return left + ((at - view.from) / (view.to - view.from)) * (wide - left);
  };
  const timeAt = (x, wide) => {
    const left = margin(wide);
    return view.from + ((x - left) / (wide - left)) * (view.to - view.from);
  };
  const seconds = (at, digits) => `${(at / 1e6).toFixed(digits)} s`;
  const digits = () => Math.max(1, Math.min(6, Math.ceil(-Math.log10((view.to - view.from) / 1e7))));
  const clip = (pen, text, room) => {
    if (pen.measureText(text).width <= room) return text;
    let end = text.length;
    while (end > 0 && pen.measureText(`${text.slice(0, end)}…`).width > room) end -= 1;
    return end > 0 ? `${text.slice(0, end)}…` : '';
  };

  // The ends of names and fences tell them apart.
  const clipStart = (pen, text, room) => {
    if (pen.measureText(text).width <= room) return text;
    let begin = 0;
    while (begin < text.length && pen.measureText(`…${text.slice(begin)}`).width > room) begin += 1;
    return begin < text.length ? `…${text.slice(begin)}` : '';
  };

  // The first hold that can reach into what is visible.
  const firstVisible = (lock) => {
    let [low, high] = [0, lock.count];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (lock.holds[middle * FIELDS] < view.from - lock.longest) low = middle + 1;
      else high = middle;
    }
    return low;
  };

  const drawAxis = (pen, wide, tall) => {
    const span = view.to - view.from;
    const raw = span / Math.max(2, (wide - margin(wide)) / 90);
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw);
    const places = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / 1e6))));
    pen.textAlign = 'center';
    for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
      const x = Math.round(place(at, wide)) + 0.5;
      pen.strokeStyle = paint.grid;
      pen.beginPath();
      pen.moveTo(x, AXIS - 4);
      pen.lineTo(x, tall);
      pen.stroke();
      pen.fillStyle = paint.faint;
      if (x > margin(wide) + 15 && x < wide - 25) pen.fillText(seconds(at, places), x, AXIS / 2);
    }
    pen.textAlign = 'left';
  };

  const drawOutages = (pen, wide, tall) => {
    pen.globalAlpha = 0.14;
    pen.fillStyle = paint.outage;
    for (const fault of data.faults) {
      if (!fault.outage || fault.to < view.from || fault.from > view.to) continue;
      const x = place(fault.from, wide);
      pen.fillRect(x, AXIS, Math.max(1, place(fault.to, wide) - x), tall - AXIS);
    }
    pen.globalAlpha = 1;
  };

  const drawFaults = (pen, wide, row) => {
    for (const fault of data.faults) {
      if (fault.target !== row.target || fault.to < view.from || fault.from > view.to) continue;
      const x = Math.max(place(fault.from, wide), margin(wide));
      const end = Math.max(place(fault.to, wide), x + 2);
      pen.fillStyle = fault.outage ? paint.outage : paint.fault;
      pen.globalAlpha = fault.beyond ? 1 : 0.75;
      pen.fillRect(x, row.top + 2, end - x, LANE);
      pen.globalAlpha = 1;
      if (end - x > 30) {
        pen.fillStyle = paint.paper;
        pen.fillText(clip(pen, fault.fault, end - x - 8), x + 4, row.top + 2 + LANE / 2);
      }
    }
  };

  const drawWaiting = (pen, wide, row, top) => {
    const { lock } = row;
    if (!lock.most) return;
    pen.fillStyle = paint.waiting;
    const first = Math.max(0, Math.floor(view.from / lock.step));
    const last = Math.min(lock.waiting.length - 1, Math.ceil(view.to / lock.step));
    let column = -1;
    let most = 0;
    for (let i = first; i <= last; i += 1) {
      const x = Math.max(place(i * lock.step, wide), margin(wide));
      const end = place((i + 1) * lock.step, wide);
      const tall = (count) => (count / lock.most) * WAITING;
      if (Math.floor(x) !== column) {
        column = Math.floor(x);
        most = 0;
      }
      most = Math.max(most, lock.waiting[i]);
      pen.fillRect(x, top + WAITING - tall(most), Math.max(1, end - x), tall(most));
    }
  };

  // Bars that are narrower than a pixel are drawn as one.
  const drawHolds = (pen, wide, row) => {
    const { lock } = row;
    const busy = new Array(lock.height).fill(-1);
    let drawn = 0;
    for (let i = firstVisible(lock); i < lock.count; i += 1) {
      const [from, length, worker, fence, kind] = lock.holds.slice(i * FIELDS, (i + 1) * FIELDS);
      if (from > view.to) break;
      const right = Math.min(place(from + length, wide), wide);
      const left = Math.max(place(from, wide), margin(wide));
      if (from + length < view.from) continue;
      const lane = lock.lanes[i];
      const tall = LANE - 3;
      const y = row.top + 4 + lane * LANE;
      const size = Math.max(right - left, 1);
      if (right < busy[lane] && size <= 1 && !(kind & 3)) continue;
      busy[lane] = left + size;
      pen.fillStyle = hue(worker);
      pen.fillRect(left, y, size > 4 ? size - 0.5 : size, tall);
      drawn += 1;
      if (kind & 3) {
        pen.fillStyle = (kind & 3) === 1 ? paint.lost : paint.killed;
        pen.fillRect(right - 1, y - 2, 2.5, tall + 4);
      }
      if (size > 34) {
        pen.fillStyle = paint.paper;
        const label = `${lock.fence_base + fence}`;
        pen.fillText(clipStart(pen, label, size - 6), left + 3, y + tall / 2 + 0.5);
      }
    }
    return drawn;
  };

  const drawFindings = (pen, wide, marks) => {
    const rowOf = new Map(rows.filter((row) => row.kind === 'lock').map((row) => [row.label, row]));
    data.findings.forEach((finding, number) => {
      if (finding.to < view.from || finding.from > view.to) return;
      const x = place(finding.from, wide);
      const end = Math.max(place(finding.to, wide), x + 2);
      const ink = inkOf(finding);
      const row = rowOf.get(finding.lock);
      if (row) {
        pen.globalAlpha = 0.28;
        pen.fillStyle = ink;
        pen.fillRect(Math.max(x, margin(wide)), row.top, end - Math.max(x, margin(wide)), row.size);
        pen.globalAlpha = 1;
        if (number === chosen) {
          pen.strokeStyle = ink;
          pen.lineWidth = 2;
          pen.strokeRect(x - 1, row.top + 1, end - x + 2, row.size - 2);
          pen.lineWidth = 1;
        }
      }
      if (x < margin(wide)) return;
      const middle = marks.top + MARKS / 2;
      pen.fillStyle = ink;
      pen.beginPath();
      pen.moveTo(x, middle - 6);
      pen.lineTo(x + 6, middle);
      pen.lineTo(x, middle + 6);
      pen.lineTo(x - 6, middle);
      pen.closePath();
      pen.fill();
      if (number === chosen) {
        pen.strokeStyle = paint.ink;
        pen.stroke();
      }
    });
  };

  const drawLabels = (pen, wide, tall) => {
    const left = margin(wide);
    pen.fillStyle = paint.paper;
    pen.fillRect(0, 0, left, tall);
    for (const row of rows) {
      const isLock = row.kind === 'lock';
      pen.fillStyle = isLock ? paint.ink : paint.faint;
      pen.font = `${isLock ? '600 ' : ''}12px system-ui, sans-serif`;
      const middle = row.top + (isLock ? (row.lock.height * LANE) / 2 + 4 : row.size / 2);
      pen.fillText((isLock ? clipStart : clip)(pen, row.label, left - 20), 10, middle);
      if (isLock) {
        pen.strokeStyle = paint.rule;
        pen.beginPath();
        pen.moveTo(0, row.top - 0.5);
        pen.lineTo(wide, row.top - 0.5);
        pen.stroke();
        pen.font = '11px system-ui, sans-serif';
        pen.fillStyle = paint.faint;
        const waited = row.lock.most ? `at most ${row.lock.most} waiting` : '';
        pen.fillText(clip(pen, waited, left - 20), 10, row.top + row.size - 9);
      }
    }
    pen.font = '12px system-ui, sans-serif';
    pen.strokeStyle = paint.rule;
    pen.beginPath();
    pen.moveTo(left - 0.5, 0);
    pen.lineTo(left - 0.5, tall);
    pen.stroke();
  };

  const drawChart = () => {
    const [pen, wide] = prepare(chart, height);
    drawOutages(pen, wide, height);
    drawAxis(pen, wide, height);
    let drawn = 0;
    for (const row of rows) {
      if (row.kind === 'faults') drawFaults(pen, wide, row);
      if (row.kind === 'lock') {
        drawWaiting(pen, wide, row, row.top + row.size - WAITING - 2);
        drawn += drawHolds(pen, wide, row);
      }
    }
    drawFindings(pen, wide, rows[0]);
    drawLabels(pen, wide, height);
    root.dataset.drawn = String(drawn);
  };

  const drawOverview = () => {
    const [pen, wide] = prepare(overview, 26);
    const left = margin(wide);
    const x = (at) => left + (at / whole) * (wide - left);
    pen.fillStyle = paint.faint;
    pen.fillText('whole run', 10, 13);
    for (const fault of data.faults) {
      pen.fillStyle = fault.outage ? paint.outage : paint.fault;
      pen.globalAlpha = 0.5;
      pen.fillRect(x(fault.from), 15, Math.max(1, x(fault.to) - x(fault.from)), 6);
    }
    pen.globalAlpha = 1;
    for (const finding of data.findings) {
      pen.fillStyle = inkOf(finding);
      pen.fillRect(x(finding.from) - 1, 3, 3, 10);
    }
    pen.strokeStyle = paint.accent;
    pen.lineWidth = 2;
    pen.strokeRect(x(view.from) + 1, 2, Math.max(4, x(view.to) - x(view.from) - 2), 22);
    pen.lineWidth = 1;
  };

  const drawRise = () => {
    const tall = 190;
    const [pen, wide] = prepare(rise, tall);
    drawAxis(pen, wide, tall);
    let [low, high] = [Infinity, -Infinity];
    const visible = locks.map((lock) => {
      const points = [];
      for (let i = firstVisible(lock); i < lock.count; i += 1) {
        const at = lock.holds[i * FIELDS];
        if (at > view.to) break;
        if (at < view.from) continue;
        const fence = lock.holds[i * FIELDS + 3];
        points.push([at, fence, lock.holds[i * FIELDS + 4] >= 4]);
        low = Math.min(low, fence);
        high = Math.max(high, fence);
      }
      return points;
    });
    const y = (fence) => tall - 10 - ((fence - low) / Math.max(high - low, 1)) * (tall - AXIS - 20);
    visible.forEach((points, number) => {
      pen.strokeStyle = hue(number + 3);
      pen.lineWidth = 1.5;
      pen.beginPath();
      points.forEach(([at, fence], i) => {
        const [px, py] = [place(at, wide), y(fence)];
        if (i === 0) pen.moveTo(px, py);
        else pen.lineTo(px, py);
      });
      pen.stroke();
      pen.lineWidth = 1;
      points.forEach(([at, fence, shared], i) => {
        const falls = i > 0 && !shared && fence <= points[i - 1][1];
        if (!falls && points.length > 200) return;
        pen.fillStyle = falls ? paint.bad : hue(number + 3);
        pen.beginPath();
        pen.arc(place(at, wide), y(fence), falls ? 5 : 2.5, 0, 7);
        pen.fill();
      });
    });
    pen.fillStyle = paint.faint;
    if (low <= high) {
      pen.fillText('higher', 10, AXIS + 10);
      pen.fillText('lower', 10, tall - 12);
    }
  };

  let planned = false;
  const draw = () => {
    planned = false;
    readPaint();
    drawChart();
    drawOverview();
    drawRise();
    const places = digits();
    byId('range').textContent =
      `${seconds(view.from, places)} to ${seconds(view.to, places)} of ${seconds(whole, 1)}`;
  };
  const plan = () => {
    if (!planned) requestAnimationFrame(draw);
    planned = true;
  };

  const look = (from, to) => {
    const span = Math.min(Math.max(to - from, 20), whole);
    view.from = Math.min(Math.max((from + to - span) / 2, 0), whole - span);
    view.to = view.from + span;
    plan();
  };
  const zoom = (factor, around) => {
    const at = around === undefined ? (view.from + view.to) / 2 : around;
    look(at - (at - view.from) * factor, at + (view.to - at) * factor);
  };
  const move = (part) => {
    const by = (view.to - view.from) * part;
    const from = Math.min(Math.max(view.from + by, 0), whole - (view.to - view.from));
    look(from, from + (view.to - view.from));
  };
  const choose = (number) => {
    const finding = data.findings[number];
    if (!finding) return;
    chosen = number;
    const starts = finding.parties.map((party) => party[0]).concat(finding.from);
    const ends = finding.parties.map((party) => party[1]).concat(finding.to);
    const pad = Math.max((finding.to - finding.from) * 2, 20000);
    look(Math.max(Math.min(...starts), finding.from - pad * 4) - pad,
      Math.min(Math.max(...ends), finding.to + pad * 4) + pad);
    for (const entry of document.querySelectorAll('.findings > li')) {
      entry.classList.toggle('chosen', entry.id === `finding-${number}`);
    }
  };
  const step = (by) => {
    const count = data.findings.length;
    if (count) choose(chosen < 0 ? (by > 0 ? 0 : count - 1) : (chosen + by + count) % count);
  };
  const actions = {
    in: () => zoom(0.5),
    out: () => zoom(2),
    left: () => move(-0.3),
    right: () => move(0.3),
    all: () => look(0, whole),
    next: () => step(1),
    previous: () => step(-1),
  };

  for (const button of document.querySelectorAll('.tools button')) {
    button.addEventListener('click', () => actions[button.dataset.do]());
    if (/next|previous/.test(button.dataset.do)) button.disabled = !data.findings.length;
  }
  for (const link of document.querySelectorAll('[data-finding]')) {
    link.addEventListener('click', () => choose(Number(link.dataset.finding)));
  }
  const keys = {
    '+': 'in', '=': 'in', '-': 'out', ArrowLeft: 'left', ArrowRight: 'right', 0: 'all',
    Home: 'all', n: 'next', p: 'previous',
  };
  chart.addEventListener('keydown', (event) => {
    const name = keys[event.key];
    if (!name || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    actions[name]();
  });
  chart.addEventListener('wheel', (event) => {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!sideways && !event.ctrlKey && document.activeElement !== chart) return;
    event.preventDefault();
    if (sideways) move(event.deltaX / 1000);
    else zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event.offsetX, chart.clientWidth));
  }, { passive: false });
  chart.addEventListener('dblclick', (event) => {
    zoom(0.4, timeAt(event.offsetX, chart.clientWidth));
  });
  let held = null;
  chart.addEventListener('pointerdown', (event) => {
    held = { x: event.offsetX, from: view.from, to: view.to, marks: event.shiftKey };
    chart.setPointerCapture(event.pointerId);
    chart.classList.add('moving');
  });
  chart.addEventListener('pointerup', (event) => {
    const wide = chart.clientWidth;
    if (held && held.marks && Math.abs(event.offsetX - held.x) > 4) {
      const ends = [timeAt(held.x, wide), timeAt(event.offsetX, wide)].sort((a, b) => a - b);
      look(ends[0], ends[1]);
    } else if (held && Math.abs(event.offsetX - held.x) <= 4) {
      const number = findingAt(event.offsetX, event.offsetY);
      if (number >= 0) choose(number);
    }
    held = null;
    chart.classList.remove('moving');
  });
  overview.addEventListener('pointerdown', (event) => {
    const left = margin(overview.clientWidth);
    const at = ((event.offsetX - left) / (overview.clientWidth - left)) * whole;
    const half = (view.to - view.from) / 2;
    look(at - half, at + half);
  });

  // What is under the pointer.
  const rowAt = (y) => rows.find((row) => y >= row.top && y < row.top + row.size);
  const findingAt = (x, y) => {
    const row = rowAt(y);
    if (!row || row.kind !== 'findings') return -1;
    const wide = chart.clientWidth;
    return data.findings.findIndex((finding) => Math.abs(place(finding.from, wide) - x) < 7);
  };
  const who = (worker) => (worker === NOBODY ? 'a run' : `worker ${worker}`);
  const holdText = (row, x, y) => {
    const { lock } = row;
    const wide = chart.clientWidth;
    const slack = ((view.to - view.from) / (wide - margin(wide))) * 2;
    const at = timeAt(x, wide);
    const lane = Math.floor((y - row.top - 4) / LANE);
    for (let i = firstVisible(lock); i < lock.count; i += 1) {
      const [from, length, worker, fence, kind] = lock.holds.slice(i * FIELDS, (i + 1) * FIELDS);
      if (from > at + slack) break;
      if (lock.lanes[i] !== lane || from + length < at - slack) continue;
      const end = ['', '\nlost', '\nits worker was killed'][kind & 3];
      return `${who(worker)}${kind >= 4 ? ' (shared)' : ''}\nfence ${lock.fence_base + fence}\n` +
        `${seconds(from, 6)}, for ${(length / 1e3).toFixed(3)} ms${end}`;
    }
    const step = lock.waiting[Math.floor(at / lock.step)];
    return y > row.top + row.size - WAITING - 2 && step !== undefined ? `${step} waiting` : '';
  };
  const textAt = (x, y) => {
    const row = rowAt(y);
    const wide = chart.clientWidth;
    if (!row) return '';
    if (x < margin(wide)) return row.label;
    if (row.kind === 'findings') {
      const finding = data.findings[findingAt(x, y)];
      return finding ? finding.text : '';
    }
    if (row.kind === 'lock') return holdText(row, x, y);
    const at = timeAt(x, wide);
    const slack = ((view.to - view.from) / (wide - margin(wide))) * 2;
    const fault = data.faults.find((one) => one.target === row.target &&
      at >= one.from - slack && at <= one.to + slack);
    return fault ? `${fault.fault} of ${fault.target}\n${seconds(fault.from, 3)} to ` +
      `${seconds(fault.to, 3)}${fault.outage ? '\nnobody can be granted a lock meanwhile' : ''}` +
      `${fault.beyond ? '\nbeyond what the store promises' : ''}` : '';
  };
  chart.addEventListener('pointermove', (event) => {
    const wide = chart.clientWidth;
    if (held && !held.marks) {
      const by = ((held.x - event.offsetX) / (wide - margin(wide))) * (held.to - held.from);
      const from = Math.min(Math.max(held.from + by, 0), whole - (held.to - held.from));
      look(from, from + held.to - held.from);
      return;
    }
    const text = textAt(event.offsetX, event.offsetY);
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const x = Math.min(event.offsetX + 14, wide - tip.offsetWidth - 6);
    tip.style.left = `${Math.max(0, x)}px`;
    const below = chart.offsetTop + event.offsetY + 16;
    const above = chart.offsetTop + event.offsetY - tip.offsetHeight - 8;
    tip.style.top = `${event.offsetY > height / 2 ? above : below}px`;
  });
  chart.addEventListener('pointerleave', () => { tip.hidden = true; });

  const legend = (list, entries) => {
    list.replaceChildren(...entries.map(([ink, text]) => {
      const item = document.createElement('li');
      const box = document.createElement('i');
      box.style.background = ink;
      item.append(box, text);
      return item;
    }));
  };
  const drawLegends = () => {
    readPaint();
    const few = [...workers].sort((a, b) => a - b).slice(0, 24);
    legend(byId('legend'), [
      ...few.map((worker) => [hue(worker), who(worker)]),
      [paint.lost, 'end: lost'], [paint.killed, 'end: its worker was killed'],
      [paint.fault, 'fault'], [paint.outage, 'fault in which nobody can be granted a lock'],
      [paint.bad, 'finding: broken'], [paint.fair, 'finding: allowed'],
      [paint.accent, 'finding: after a revocation'],
    ]);
    legend(byId('locks'), locks.map((lock, number) => [hue(number + 3), lock.name]));
  };

  if (data.shown < data.total) {
    const note = byId('sampled');
    note.hidden = false;
    note.textContent = `Of ${data.total} holds ${data.shown} are drawn: all that were lost or whose ` +
      'worker was killed, those within two seconds of a finding, and an even sample of the others. ' +
      'All of them were judged.';
  }
  new ResizeObserver(plan).observe(chart);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    drawLegends();
    plan();
  });
  drawLegends();
  draw();
  const asked = /^#finding-(\d+)$/.exec(location.hash);
  if (asked) {
    choose(Number(asked[1]));
    draw();
  }
  root.dataset.ready = 'yes';
})();
