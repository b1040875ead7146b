// pg-boss. What it looks at most often: schedules and jobs, once a second.
import { createRequire } from 'node:module';
const require = createRequire(process.env.PEER_NODE + '/');
const { PgBoss } = await import(`${process.env.PEER_NODE}/node_modules/pg-boss/dist/index.js`);
const { Pool } = require('undici');

const [command, number, url] = process.argv.slice(2);
const boss = new PgBoss({
  connectionString: process.env.PEER_STORE, max: 10, cronMonitorIntervalSeconds: 1, cronWorkerIntervalSeconds: 1,
  schedule: command !== 'create',
});
boss.on('error', (error) => console.error(error));
await boss.start();

if (command === 'create') {
  await boss.createQueue('fire');
  let next = 0;
  await Promise.all(Array.from({ length: 8 }, async () => {
    while (next < +number) {
      const n = next++;
      await boss.schedule('fire', '* * * * *', { n }, { key: `s${n}`, missed: 'once' });
    }
  }));
  await boss.stop({ graceful: false });
  process.exit(0);
} else {
  const batchSize = 500;
  const receiver = new Pool(url, { connections: batchSize });
  const options = { batchSize, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true };
  await boss.work('fire', options, (jobs) => Promise.all(jobs.map(async ({ data: { n } }) => {
    const { statusCode, body } = await receiver.request({
      path: `/s${n}`, method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ n }),
    });
    await body.text();
    if (statusCode !== 200) throw new Error(`status ${statusCode}`);
  })));
  process.on('SIGTERM', async () => { await boss.stop({ graceful: true, timeout: 5000 }); process.exit(0); });
}
