// pg-boss. What it looks at most often: schedules once a second, jobs twice.
import { batches, command, connectionString, given, keepSeconds, onTerm, poster, queues } from './peer.mjs';
const { PgBoss } = await import(`${process.env.PEER_NODE}/node_modules/pg-boss/dist/index.js`);

const isWorker = command === 'worker' || command === 'fire';
const boss = new PgBoss({
  connectionString, max: 10, cronMonitorIntervalSeconds: 1, cronWorkerIntervalSeconds: 1, schedule: command === 'worker',
  supervise: isWorker, monitorIntervalSeconds: 10, maintenanceIntervalSeconds: keepSeconds,
});
boss.on('error', (error) => console.error(error));
await boss.start();

if (isWorker) {
  const polling = { pollingIntervalSeconds: 0.5, burstWhenBatchFull: true };
  if (command === 'fire') {
    const batchSize = 50;
    for (const [queue, concurrency] of queues()) {
      const post = poster(concurrency);
      await boss.work(queue, { ...polling, batchSize, localConcurrency: Math.ceil(concurrency / batchSize) }, (jobs) => Promise.all(
        jobs.map(({ data: { n, url } }) => post(url, n, { 'webhook-id': `${n}` })),
      ));
    }
  } else {
    const [, url] = given, batchSize = 500, post = poster(batchSize);
    await boss.work('fire', { ...polling, batchSize }, (jobs) => Promise.all(
      jobs.map(({ data: { n } }) => post(`${url}s${n}`, n)),
    ));
  }
  onTerm(() => boss.stop({ graceful: true, timeout: 5000 }));
} else {
  if (command === 'create') {
    const [number] = given;
    await boss.createQueue('fire');
    let next = 0;
    await Promise.all(Array.from({ length: 8 }, async () => {
      while (next < +number) {
        const n = next++;
        await boss.schedule('fire', '* * * * *', { n }, { key: `s${n}`, missed: 'once' });
      }
    }));
  } else {
    for (const queue of ['slow', 'quick']) {
      await boss.createQueue(queue, { expireInSeconds: 30, deleteAfterSeconds: keepSeconds });
    }
    for await (const timers of batches()) {
      for (const queue of new Set(timers.map((each) => each.queue))) {
        await boss.insert(queue, timers.filter((each) => each.queue === queue).map(
          ({ n, at, url }) => ({ data: { n, url }, startAfter: new Date(at) }),
        ));
      }
    }
  }
  await boss.stop({ graceful: false });
  process.exit(0);
}
