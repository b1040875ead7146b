// graphile-worker, with a crontab that is given in code. The job of an occurrence carries the time that it is for.
import { createRequire } from 'node:module';
const require = createRequire(process.env.PEER_NODE + '/');
const { Logger, makeWorkerUtils, parseCronItems, run } = require('graphile-worker');
const { Pool } = require('undici');

const [command, number, url] = process.argv.slice(2);
const connectionString = process.env.PEER_STORE;
const logger = new Logger(() => (level, message) => { if (level === 'error') console.error(message); });

if (command === 'create') {
  const utils = await makeWorkerUtils({ connectionString, logger });
  await utils.migrate();
  await utils.release();
} else {
  const connections = 24;
  const receiver = new Pool(url, { connections });
  const items = Array.from({ length: +number }, (_, n) => (
    { task: 'fire', match: '* * * * *', identifier: `s${n}`, payload: { n }, options: { backfillPeriod: 3600_000 } }
  ));
  const fire = async ({ n, _cron }) => {
    const { statusCode, body } = await receiver.request({
      path: `/s${n}`, method: 'POST', headers: { 'content-type': 'application/json', 'webhook-id': _cron.ts },
      body: JSON.stringify({ n }),
    });
    await body.text();
    if (statusCode !== 200) throw new Error(`status ${statusCode}`);
  };
  const runner = await run({
    preset: {
      worker: {
        connectionString, concurrentJobs: connections, pollInterval: 100, maxPoolSize: connections + 2,
        completeJobBatchDelay: 50, localQueue: { size: 100 },
      },
    },
    logger, noHandleSignals: true, parsedCronItems: parseCronItems(items), taskList: { fire },
  });
  process.on('SIGTERM', async () => { await runner.stop(); process.exit(0); });
}
