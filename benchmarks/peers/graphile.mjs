// graphile-worker, with a crontab that is given in code. The job of an occurrence carries the time that it is for.
import { batches, command, connectionString, given, onTerm, poster, queues, require } from './peer.mjs';
const { Logger, makeWorkerUtils, parseCronItems, run } = require('graphile-worker');
const logger = new Logger(() => (level, message) => { if (level === 'error') console.error(message); });

const runner = (concurrency, localQueueSize, options) => run({
  preset: {
    worker: {
      connectionString, concurrentJobs: concurrency, pollInterval: 100, maxPoolSize: Math.min(concurrency + 2, 60),
      completeJobBatchDelay: 50, localQueue: { size: localQueueSize },
    },
  },
  logger, noHandleSignals: true, ...options,
});

if (command === 'create' || command === 'feed') {
  const utils = await makeWorkerUtils({ connectionString, logger });
  await utils.migrate();
  for await (const timers of command === 'feed' ? batches() : []) {
    await utils.addJobs(timers.map(({ queue, n, at, url }) => ({ identifier: queue, payload: { n, url }, runAt: new Date(at) })));
  }
  await utils.release();
} else if (command === 'fire') {
  // As its documentation advises: the local queue is one larger than the number of concurrent jobs.
  const runners = await Promise.all(queues().map(([queue, concurrency]) => {
    const post = poster(concurrency);
    const task = ({ n, url }) => post(url, n, { 'webhook-id': `${n}` });
    return runner(concurrency, concurrency + 1, { taskList: { [queue]: task } });
  }));
  onTerm(() => Promise.all(runners.map((each) => each.stop())));
} else {
  const [number, url] = given, connections = 24, post = poster(connections);
  const items = Array.from({ length: +number }, (_, n) => (
    { task: 'fire', match: '* * * * *', identifier: `s${n}`, payload: { n }, options: { backfillPeriod: 3600_000 } }
  ));
  const fire = ({ n, _cron }) => post(`${url}s${n}`, n, { 'webhook-id': _cron.ts });
  const only = await runner(connections, 100, { parsedCronItems: parseCronItems(items), taskList: { fire } });
  onTerm(() => only.stop());
}
