BEGIN TRANSACTION;
CREATE TABLE durations (
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  sketch TEXT NOT NULL,
  PRIMARY KEY (tenant, kind)
) WITHOUT ROWID;
CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant TEXT NOT NULL,
  job_id TEXT NOT NULL,
  type TEXT NOT NULL,
  at REAL NOT NULL,
  job TEXT NOT NULL
);
INSERT INTO "events" VALUES(1,'-','01JGGVSB2Q02HZBXW2EVTPRJ2D','status',1.73573280059960818291e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.5992408}');
INSERT INTO "events" VALUES(2,'-','01JGGVSB30A64XRTX2QFS2CXF6','status',1.73573280061078047756e+09,'{"kind":"half","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.6089804}');
INSERT INTO "events" VALUES(3,'-','01JGGVSB3ENZQ1AY6BQY49X57M','status',1.73573280062261080746e+09,'{"kind":"paint","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.6223285}');
INSERT INTO "events" VALUES(4,'-','01JGGVSB3Z3REYFP5QD07JZ7T8','status',1.73573280064278388018e+09,'{"kind":"fail","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.639155}');
INSERT INTO "events" VALUES(5,'-','01JGGVSB4G54H05F43NS4TPHE8','status',1.73573280065664815909e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.656077}');
INSERT INTO "events" VALUES(6,'-','01JGGVSB2Q02HZBXW2EVTPRJ2D','status',1.73573280067912912366e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:30774"}');
INSERT INTO "events" VALUES(7,'-','01JGGVSB30A64XRTX2QFS2CXF6','status',1.73573280069416928288e+09,'{"kind":"half","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:30774"}');
INSERT INTO "events" VALUES(8,'-','01JGGVSB2Q02HZBXW2EVTPRJ2D','step',1.73573280078561067584e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:30774","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(9,'-','01JGGVSB2Q02HZBXW2EVTPRJ2D','step',1.73573280079153323168e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:30774","step":{"name":"first","status":"DONE"}}');
INSERT INTO "events" VALUES(10,'-','01JGGVSB2Q02HZBXW2EVTPRJ2D','step',1.73573280079673886297e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"worker":"host:30774","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(11,'-','01JGGVSB2Q02HZBXW2EVTPRJ2D','step',1.73573280079673886297e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"worker":"host:30774","step":{"name":"second","status":"DONE"}}');
INSERT INTO "events" VALUES(12,'-','01JGGVSB2Q02HZBXW2EVTPRJ2D','status',1.73573280079874014848e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"seconds":0.11961102485656738}');
INSERT INTO "events" VALUES(13,'-','01JGGVSB3ENZQ1AY6BQY49X57M','status',1.73573280079874014848e+09,'{"kind":"paint","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:30774"}');
INSERT INTO "events" VALUES(14,'-','01JGGVSB3ENZQ1AY6BQY49X57M','status',1.73573280081390237802e+09,'{"kind":"paint","queue":"default","status":"DONE","version":3,"run":1,"attempt":1,"fence":1,"seconds":0.015162229537963867}');
INSERT INTO "events" VALUES(15,'-','01JGGVSB3Z3REYFP5QD07JZ7T8','status',1.73573280081390237802e+09,'{"kind":"fail","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:30774"}');
INSERT INTO "events" VALUES(16,'-','01JGGVSB3Z3REYFP5QD07JZ7T8','status',1.73573280081670308118e+09,'{"kind":"fail","queue":"default","status":"ERROR","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"2806373d0ad24588b6901fa08b65a3e8"},"seconds":0.0028007030487060547}');
INSERT INTO "events" VALUES(17,'-','01JGGVSB4G54H05F43NS4TPHE8','status',1.73573280081670308118e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:30774"}');
INSERT INTO "events" VALUES(18,'-','01JGGVSB4G54H05F43NS4TPHE8','step',1.73573280082069015496e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:30774","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(19,'-','01JGGVSB4G54H05F43NS4TPHE8','step',1.73573280082069015496e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:30774","step":{"name":"first","status":"DONE"}}');
INSERT INTO "events" VALUES(20,'-','01JGGVSB4G54H05F43NS4TPHE8','step',1.73573280082246875766e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"worker":"host:30774","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(21,'-','01JGGVSB4G54H05F43NS4TPHE8','step',1.73573280082246875766e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"worker":"host:30774","step":{"name":"second","status":"DONE"}}');
INSERT INTO "events" VALUES(22,'-','01JGGVSB30A64XRTX2QFS2CXF6','status',1.73573280082397842405e+09,'{"kind":"half","queue":"default","status":"PARTIAL_SUCCESS","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"fcdb3feee1bc7dbcbb44bb8528c98425","errors":[{"code":"MISSING","message":"the other half"}]},"seconds":0.12980914115905762}');
INSERT INTO "events" VALUES(23,'-','01JGGVSB4G54H05F43NS4TPHE8','status',1.73573280082397842405e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"seconds":0.00727534294128418}');
INSERT INTO "events" VALUES(24,'-','01JGGVSBACF6HQGE1DVBSZKX4B','status',1.73573280084484219548e+09,'{"kind":"heal","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.8445497}');
INSERT INTO "events" VALUES(25,'-','01JGGVSBACF6HQGE1DVBSZKX4B','status',1.73573280084484219548e+09,'{"kind":"heal","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:30774"}');
INSERT INTO "events" VALUES(26,'-','01JGGVSBACF6HQGE1DVBSZKX4B','status',1.73573280085178923608e+09,'{"kind":"heal","queue":"default","status":"RETRYING","version":3,"run":1,"attempt":1,"fence":1,"due":1735732947.0507586,"nextAttemptAt":1735732947.0507586,"error":{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"002c8ef8f3fb3323c79f4bf6c11b28e0"}}');
INSERT INTO "events" VALUES(27,'-','01JGGVSBBAAEVVS2954FX6T5A7','status',1.73573280087440371516e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":4102444800.0}');
INSERT INTO "events" VALUES(28,'-','01JGGVSBBFY1HVKE9S5FCVF4TM','status',1.73573280087989974024e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":4102444800.0}');
INSERT INTO "events" VALUES(29,'-','01JGGVSBBFY1HVKE9S5FCVF4TM','status',1.73573280088199281695e+09,'{"kind":"work","queue":"default","status":"CANCELLED","version":2,"run":1,"attempt":0,"fence":0,"cancelAsked":true}');
INSERT INTO "events" VALUES(30,'-','01JGGVSBBNDJPWPDGHYZQS73JZ','status',1.73573280088580727577e+09,'{"kind":"rest","queue":"other","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.8855908}');
INSERT INTO "events" VALUES(31,'-','01JGGVSBBT2G8078QWS722Y08K','status',1.73573280089082026484e+09,'{"kind":"family","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.8905418}');
INSERT INTO "events" VALUES(32,'-','01JGGVSBBT2G8078QWS722Y08K','status',1.73573280089082026484e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:30774"}');
INSERT INTO "events" VALUES(33,'-','01JGGVSBBZEZB43QJVZYMBDGCC','status',1.73573280089803814885e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.8970258}');
INSERT INTO "events" VALUES(34,'-','01JGGVSBBT2G8078QWS722Y08K','status',1.73573280089803814885e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:30774"}');
INSERT INTO "events" VALUES(35,'-','01JGGVSBBZEZB43QJVZYMBDGCC','status',1.73573280089803814885e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:30774"}');
INSERT INTO "events" VALUES(36,'-','01JGGVSBC0K9ZW44WAXBN4MTFX','status',1.73573280090177536017e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.8994637}');
INSERT INTO "events" VALUES(37,'-','01JGGVSBBT2G8078QWS722Y08K','status',1.73573280090177536017e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:30774"}');
INSERT INTO "events" VALUES(38,'-','01JGGVSBBZEZB43QJVZYMBDGCC','step',1.73573280090177536017e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:30774","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(39,'-','01JGGVSBBZEZB43QJVZYMBDGCC','step',1.73573280090384507176e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:30774","step":{"name":"first","status":"DONE"}}');
INSERT INTO "events" VALUES(40,'-','01JGGVSBBT2G8078QWS722Y08K','status',1.73573280090384507176e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"parked":true}');
INSERT INTO "events" VALUES(41,'-','01JGGVSBC0K9ZW44WAXBN4MTFX','status',1.73573280090384507176e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:30774"}');
INSERT INTO "events" VALUES(42,'-','01JGGVSBC0K9ZW44WAXBN4MTFX','step',1.73573280090594911579e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:30774","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(43,'-','01JGGVSBC0K9ZW44WAXBN4MTFX','step',1.73573280090594911579e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:30774","step":{"name":"first","status":"DONE"}}');
INSERT INTO "events" VALUES(44,'-','01JGGVSBCXCYAG0TPGNTRSX5MS','status',1.73573280092551088336e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.9252899}');
CREATE TABLE inputs (
  job_id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  input TEXT NOT NULL,
  files TEXT
) WITHOUT ROWID;
INSERT INTO "inputs" VALUES('01JGGVSB2Q02HZBXW2EVTPRJ2D','-','{"number": 1}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB30A64XRTX2QFS2CXF6','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB3ENZQ1AY6BQY49X57M','-','{"size": 10}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB3Z3REYFP5QD07JZ7T8','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB4G54H05F43NS4TPHE8','-','{"number": 2}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBACF6HQGE1DVBSZKX4B','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBBAAEVVS2954FX6T5A7','-','{"number": 2}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBBFY1HVKE9S5FCVF4TM','-','{"number": 2}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBBNDJPWPDGHYZQS73JZ','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBBT2G8078QWS722Y08K','-','{"number": 10, "seconds": 60}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBBZEZB43QJVZYMBDGCC','-','{"number":10,"seconds":60.0}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBC0K9ZW44WAXBN4MTFX','-','{"number":11,"seconds":60.0}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBCXCYAG0TPGNTRSX5MS','-','{"number": 3}',NULL);
CREATE TABLE jobs (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  queue TEXT NOT NULL,
  created_at REAL NOT NULL,
  updated_at REAL NOT NULL,
  tenant TEXT NOT NULL,
  status TEXT NOT NULL,
  version INTEGER NOT NULL,
  run INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  labels TEXT,
  run_at REAL,
  due REAL,
  deadline REAL,
  attempt INTEGER NOT NULL,
  max_attempts INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  losses INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  owner TEXT,
  lease_until REAL,
  started_at REAL,
  next_attempt_at REAL,
  cancel_asked_at REAL,
  finished_at REAL,
  keep REAL,
  expires_at REAL,
  result TEXT,
  result_file TEXT,
  error TEXT,
  progress TEXT,
  steps TEXT,
  files TEXT,
  parent TEXT,
  children TEXT,
  waiting_for TEXT,
  trace_id TEXT,
  -- 1: due and waiting for a worker; the claim looks at nothing else
  ready INTEGER NOT NULL DEFAULT 0
);
INSERT INTO "jobs" VALUES(1,'01JGGVSB2Q02HZBXW2EVTPRJ2D','work','default',1.73573280059924077989e+09,1.73573280079874014848e+09,'-','DONE',7,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280067912912366e+09,NULL,NULL,1.73573280079874014848e+09,NULL,NULL,'1',NULL,NULL,NULL,'[{"name":"first","status":"DONE"},{"name":"second","status":"DONE"}]',NULL,NULL,NULL,NULL,'67982b778b3395f319dcc6ee5fa4eb08',0);
INSERT INTO "jobs" VALUES(2,'01JGGVSB30A64XRTX2QFS2CXF6','half','default',1.73573280060898041724e+09,1.73573280082397842405e+09,'-','PARTIAL_SUCCESS',3,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280069416928288e+09,NULL,NULL,1.73573280082397842405e+09,NULL,NULL,'{"done":1}',NULL,'{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"fcdb3feee1bc7dbcbb44bb8528c98425","errors":[{"code":"MISSING","message":"the other half"}]}',NULL,NULL,NULL,NULL,NULL,NULL,'fcdb3feee1bc7dbcbb44bb8528c98425',0);
INSERT INTO "jobs" VALUES(3,'01JGGVSB3ENZQ1AY6BQY49X57M','paint','default',1.73573280062232851981e+09,1.73573280081390237802e+09,'-','DONE',3,1,0,NULL,NULL,NULL,NULL,1,101,0,0,1,NULL,NULL,1.73573280079874014848e+09,NULL,NULL,1.73573280081390237802e+09,NULL,NULL,'10',NULL,NULL,NULL,NULL,'[{"name":"picture.bin","content_type":"application/octet-stream","size":10,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","blob":"01JGGVSB3ENZQ1AY6BQY49X57M/1/picture.bin"}]',NULL,NULL,NULL,'a3b51c852c5a8688dc24b25345c5f133',0);
INSERT INTO "jobs" VALUES(4,'01JGGVSB3Z3REYFP5QD07JZ7T8','fail','default',1.735732800639154911e+09,1.73573280081670308118e+09,'-','ERROR',3,1,0,NULL,NULL,NULL,NULL,1,1,1,0,1,NULL,NULL,1.73573280081390237802e+09,NULL,NULL,1.73573280081670308118e+09,NULL,NULL,NULL,NULL,'{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"2806373d0ad24588b6901fa08b65a3e8"}',NULL,NULL,NULL,NULL,NULL,NULL,'2806373d0ad24588b6901fa08b65a3e8',0);
INSERT INTO "jobs" VALUES(5,'01JGGVSB4G54H05F43NS4TPHE8','work','default',1.73573280065607690814e+09,1.73573280082397842405e+09,'-','DONE',7,1,0,'{"of":"ann"}',NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280081670308118e+09,NULL,NULL,1.73573280082397842405e+09,NULL,NULL,'2',NULL,NULL,NULL,'[{"name":"first","status":"DONE"},{"name":"second","status":"DONE"}]',NULL,NULL,NULL,NULL,'0e864c711f24c03cc3de71fac6333fed',0);
INSERT INTO "jobs" VALUES(6,'01JGGVSBACF6HQGE1DVBSZKX4B','heal','default',1.73573280084454965596e+09,1.73573280085178923608e+09,'-','RETRYING',3,1,0,NULL,NULL,1.7357329470507586002e+09,NULL,1,2,1,0,1,NULL,NULL,1.73573280084484219548e+09,1.7357329470507586002e+09,NULL,NULL,NULL,NULL,NULL,NULL,'{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"002c8ef8f3fb3323c79f4bf6c11b28e0"}',NULL,NULL,NULL,NULL,NULL,NULL,'002c8ef8f3fb3323c79f4bf6c11b28e0',0);
INSERT INTO "jobs" VALUES(7,'01JGGVSBBAAEVVS2954FX6T5A7','work','default',1.73573280087412023546e+09,1.73573280087412023546e+09,'-','PENDING',1,1,0,'{"of":"ann"}',4102444800.0,4102444800.0,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'1b5c5458ebad05a1ad352514200bb4dc',0);
INSERT INTO "jobs" VALUES(8,'01JGGVSBBFY1HVKE9S5FCVF4TM','work','default',1.73573280087959861753e+09,1.73573280088199281695e+09,'-','CANCELLED',2,1,0,'{"of":"ann"}',4102444800.0,NULL,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,1.73573280088199281695e+09,1.73573280088199281695e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'13519e9a08709739d2ed9ce85bbe4bf7',0);
INSERT INTO "jobs" VALUES(9,'01JGGVSBBNDJPWPDGHYZQS73JZ','rest','other',1.73573280088559079173e+09,1.73573280088559079173e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573280088559079173e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'cc95e954fcbd9e16d8d7a4d02f9ae483',1);
INSERT INTO "jobs" VALUES(10,'01JGGVSBBT2G8078QWS722Y08K','family','default',1.73573280089054179193e+09,1.73573280090384507176e+09,'-','PROCESSING',5,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280089082026484e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"job_id":"01JGGVSBBZEZB43QJVZYMBDGCC","kind":"work","key":"work#1","status":null},{"job_id":"01JGGVSBC0K9ZW44WAXBN4MTFX","kind":"work","key":"work#2","status":null}]','["01JGGVSBBZEZB43QJVZYMBDGCC","01JGGVSBC0K9ZW44WAXBN4MTFX"]','37c008aded770b2a90ebc2bdc5e0aaf9',0);
INSERT INTO "jobs" VALUES(11,'01JGGVSBBZEZB43QJVZYMBDGCC','work','default',1.73573280089702582356e+09,1.73573280090384507176e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:30774',1.73573283089803814894e+09,1.73573280089803814885e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE"}]',NULL,'01JGGVSBBT2G8078QWS722Y08K',NULL,NULL,'37c008aded770b2a90ebc2bdc5e0aaf9',0);
INSERT INTO "jobs" VALUES(12,'01JGGVSBC0K9ZW44WAXBN4MTFX','work','default',1.73573280089946365353e+09,1.73573280090594911579e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:30774',1.73573283090384507176e+09,1.73573280090384507176e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE"}]',NULL,'01JGGVSBBT2G8078QWS722Y08K',NULL,NULL,'37c008aded770b2a90ebc2bdc5e0aaf9',0);
INSERT INTO "jobs" VALUES(13,'01JGGVSBCXCYAG0TPGNTRSX5MS','work','default',1.73573280092528986926e+09,1.73573280092528986926e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573280092528986926e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'5542004eeaf0a86f35867d2e130b9186',1);
CREATE TABLE keys (
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  fingerprint BLOB NOT NULL,
  job_id TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (tenant, kind, key)
) WITHOUT ROWID;
INSERT INTO "keys" VALUES('-','work','one',X'696C9423A246C064756A887F9C1DD1568C39500D0D6C6F913B5CF6936662980F','01JGGVSB4G54H05F43NS4TPHE8',1.73573280065664815909e+09);
CREATE TABLE queues (
  tenant TEXT NOT NULL,
  name TEXT NOT NULL,
  paused INTEGER NOT NULL,
  PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
INSERT INTO "queues" VALUES('-','other',1);
CREATE TABLE steps (
  job_id TEXT NOT NULL,
  name TEXT NOT NULL,
  tenant TEXT NOT NULL,
  result TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (job_id, name)
) WITHOUT ROWID;
INSERT INTO "steps" VALUES('01JGGVSB2Q02HZBXW2EVTPRJ2D','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280079153323168e+09);
INSERT INTO "steps" VALUES('01JGGVSB2Q02HZBXW2EVTPRJ2D','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573280079673886297e+09);
INSERT INTO "steps" VALUES('01JGGVSB4G54H05F43NS4TPHE8','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280082069015496e+09);
INSERT INTO "steps" VALUES('01JGGVSB4G54H05F43NS4TPHE8','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573280082246875766e+09);
INSERT INTO "steps" VALUES('01JGGVSBBZEZB43QJVZYMBDGCC','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280090384507176e+09);
INSERT INTO "steps" VALUES('01JGGVSBC0K9ZW44WAXBN4MTFX','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280090594911579e+09);
CREATE TABLE tombstones (
  id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX jobs_claim ON jobs (queue, kind, priority DESC, seq) WHERE ready = 1;
CREATE INDEX jobs_due ON jobs (due) WHERE ready = 0 AND due IS NOT NULL;
CREATE INDEX jobs_lease ON jobs (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX jobs_deadline ON jobs (deadline) WHERE deadline IS NOT NULL AND finished_at IS NULL;
CREATE INDEX jobs_expiry ON jobs (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX jobs_status ON jobs (status, id) WHERE status <> 'DONE';
CREATE INDEX jobs_kind ON jobs (kind, id);
CREATE INDEX events_job ON events (job_id, id);
CREATE INDEX keys_at ON keys (at);
CREATE INDEX keys_job ON keys (job_id);
CREATE INDEX tombstones_at ON tombstones (at);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',44);
COMMIT;
