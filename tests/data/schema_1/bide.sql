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
INSERT INTO "events" VALUES(1,'-','01JGGVSAVTR2MWPG1MFNZ9QAD7','status',1.73573280037840580944e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.3780441}');
INSERT INTO "events" VALUES(2,'-','01JGGVSAWS2Q7QGRMFQMFW08ZS','status',1.7357328004098238945e+09,'{"kind":"half","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.4095643}');
INSERT INTO "events" VALUES(3,'-','01JGGVSAXDATN8JR1X75S1AMX1','status',1.73573280043022537232e+09,'{"kind":"paint","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.4299486}');
INSERT INTO "events" VALUES(4,'-','01JGGVSAXWZBCKYGVM70KDGXGT','status',1.73573280044465827944e+09,'{"kind":"fail","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.4443593}');
INSERT INTO "events" VALUES(5,'-','01JGGVSAYANDQTEGG4VN8JXY34','status',1.7357328004589219093e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.4584832}');
INSERT INTO "events" VALUES(6,'-','01JGGVSAVTR2MWPG1MFNZ9QAD7','status',1735732800.52906,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:14814"}');
INSERT INTO "events" VALUES(7,'-','01JGGVSAWS2Q7QGRMFQMFW08ZS','status',1.73573280056365394593e+09,'{"kind":"half","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:14814"}');
INSERT INTO "events" VALUES(8,'-','01JGGVSAVTR2MWPG1MFNZ9QAD7','step',1.73573280065004611019e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:14814","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(9,'-','01JGGVSAVTR2MWPG1MFNZ9QAD7','step',1.73573280065004611019e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:14814","step":{"name":"first","status":"DONE"}}');
INSERT INTO "events" VALUES(10,'-','01JGGVSAVTR2MWPG1MFNZ9QAD7','step',1.73573280065183544159e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"worker":"host:14814","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(11,'-','01JGGVSAVTR2MWPG1MFNZ9QAD7','step',1.73573280065242505076e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"worker":"host:14814","step":{"name":"second","status":"DONE"}}');
INSERT INTO "events" VALUES(12,'-','01JGGVSAVTR2MWPG1MFNZ9QAD7','status',1.73573280065349245075e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"seconds":0.12443256378173828}');
INSERT INTO "events" VALUES(13,'-','01JGGVSAXDATN8JR1X75S1AMX1','status',1.73573280065349245075e+09,'{"kind":"paint","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:14814"}');
INSERT INTO "events" VALUES(14,'-','01JGGVSAXDATN8JR1X75S1AMX1','status',1.73573280066171789165e+09,'{"kind":"paint","queue":"default","status":"DONE","version":3,"run":1,"attempt":1,"fence":1,"seconds":0.008225440979003906}');
INSERT INTO "events" VALUES(15,'-','01JGGVSAXWZBCKYGVM70KDGXGT','status',1.73573280066171789165e+09,'{"kind":"fail","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:14814"}');
INSERT INTO "events" VALUES(16,'-','01JGGVSAXWZBCKYGVM70KDGXGT','status',1.73573280066410684584e+09,'{"kind":"fail","queue":"default","status":"ERROR","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"10ddb40ae0d856df6f78aa376772de29"},"seconds":0.0023889541625976562}');
INSERT INTO "events" VALUES(17,'-','01JGGVSAYANDQTEGG4VN8JXY34','status',1.73573280066410684584e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:14814"}');
INSERT INTO "events" VALUES(18,'-','01JGGVSAYANDQTEGG4VN8JXY34','step',1.73573280066572904582e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:14814","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(19,'-','01JGGVSAYANDQTEGG4VN8JXY34','step',1.73573280066572904582e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:14814","step":{"name":"first","status":"DONE"}}');
INSERT INTO "events" VALUES(20,'-','01JGGVSAYANDQTEGG4VN8JXY34','step',1.73573280066669845579e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"worker":"host:14814","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(21,'-','01JGGVSAYANDQTEGG4VN8JXY34','step',1.73573280066669845579e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"worker":"host:14814","step":{"name":"second","status":"DONE"}}');
INSERT INTO "events" VALUES(22,'-','01JGGVSAYANDQTEGG4VN8JXY34','status',1.73573280066765093807e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"seconds":0.0035440921783447266}');
INSERT INTO "events" VALUES(23,'-','01JGGVSAWS2Q7QGRMFQMFW08ZS','status',1.73573280068170952795e+09,'{"kind":"half","queue":"default","status":"PARTIAL_SUCCESS","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"e58628816fa28d9166cfb2c38c2e14e6","errors":[{"code":"MISSING","message":"the other half"}]},"seconds":0.11805558204650879}');
INSERT INTO "events" VALUES(24,'-','01JGGVSB5V3BJ1HHCJPNTYCFZ4','status',1.73573280069975185392e+09,'{"kind":"heal","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.699503}');
INSERT INTO "events" VALUES(25,'-','01JGGVSB5V3BJ1HHCJPNTYCFZ4','status',1.73573280069975185392e+09,'{"kind":"heal","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:14814"}');
INSERT INTO "events" VALUES(26,'-','01JGGVSB5V3BJ1HHCJPNTYCFZ4','status',1.73573280070472502709e+09,'{"kind":"heal","queue":"default","status":"RETRYING","version":3,"run":1,"attempt":1,"fence":1,"due":1735732830.2541783,"nextAttemptAt":1735732830.2541783,"error":{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"3255a2cf20d519bc24fc6d87002c6f8f"}}');
INSERT INTO "events" VALUES(27,'-','01JGGVSB6NNAGPM46S35X2RYA5','status',1.73573280072601342205e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":4102444800.0}');
INSERT INTO "events" VALUES(28,'-','01JGGVSB6SXGCFB0FPPZEZTZCG','status',1.73573280073007893561e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":4102444800.0}');
INSERT INTO "events" VALUES(29,'-','01JGGVSB6SXGCFB0FPPZEZTZCG','status',1.73573280073175382608e+09,'{"kind":"work","queue":"default","status":"CANCELLED","version":2,"run":1,"attempt":0,"fence":0,"cancelAsked":true}');
INSERT INTO "events" VALUES(30,'-','01JGGVSB6YKTT4W6ZPKANY0WM2','status',1.73573280073464012145e+09,'{"kind":"rest","queue":"other","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.7344072}');
INSERT INTO "events" VALUES(31,'-','01JGGVSB71BXFRKHNEBNXC0B9J','status',1.73573280073809909813e+09,'{"kind":"family","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.7378738}');
INSERT INTO "events" VALUES(32,'-','01JGGVSB71BXFRKHNEBNXC0B9J','status',1.73573280073809909813e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:14814"}');
INSERT INTO "events" VALUES(33,'-','01JGGVSB76H0XSBG2MBXV0KCBF','status',1.73573280074403309821e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.743472}');
INSERT INTO "events" VALUES(34,'-','01JGGVSB71BXFRKHNEBNXC0B9J','status',1.73573280074403309821e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:14814"}');
INSERT INTO "events" VALUES(35,'-','01JGGVSB76H0XSBG2MBXV0KCBF','status',1.73573280074403309821e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:14814"}');
INSERT INTO "events" VALUES(36,'-','01JGGVSB776ADS9RE87R88NX7Z','status',1.73573280074593281748e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.7457502}');
INSERT INTO "events" VALUES(37,'-','01JGGVSB71BXFRKHNEBNXC0B9J','status',1.73573280074593281748e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:14814"}');
INSERT INTO "events" VALUES(38,'-','01JGGVSB76H0XSBG2MBXV0KCBF','step',1.73573280074650859836e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:14814","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(39,'-','01JGGVSB76H0XSBG2MBXV0KCBF','step',1.73573280074693369863e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:14814","step":{"name":"first","status":"DONE"}}');
INSERT INTO "events" VALUES(40,'-','01JGGVSB71BXFRKHNEBNXC0B9J','status',1.73573280074693369863e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"parked":true}');
INSERT INTO "events" VALUES(41,'-','01JGGVSB776ADS9RE87R88NX7Z','status',1.73573280074693369863e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:14814"}');
INSERT INTO "events" VALUES(42,'-','01JGGVSB776ADS9RE87R88NX7Z','step',1.73573280074813985828e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:14814","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(43,'-','01JGGVSB776ADS9RE87R88NX7Z','step',1.73573280074858713145e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:14814","step":{"name":"first","status":"DONE"}}');
INSERT INTO "events" VALUES(44,'-','01JGGVSB81NXFZ1GKCMQT875CJ','status',1.73573280076986312869e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.7696648}');
CREATE TABLE inputs (
  job_id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  input TEXT NOT NULL,
  files TEXT
) WITHOUT ROWID;
INSERT INTO "inputs" VALUES('01JGGVSAVTR2MWPG1MFNZ9QAD7','-','{"number": 1}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSAWS2Q7QGRMFQMFW08ZS','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSAXDATN8JR1X75S1AMX1','-','{"size": 10}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSAXWZBCKYGVM70KDGXGT','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSAYANDQTEGG4VN8JXY34','-','{"number": 2}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB5V3BJ1HHCJPNTYCFZ4','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB6NNAGPM46S35X2RYA5','-','{"number": 2}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB6SXGCFB0FPPZEZTZCG','-','{"number": 2}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB6YKTT4W6ZPKANY0WM2','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB71BXFRKHNEBNXC0B9J','-','{"number": 10, "seconds": 60}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB76H0XSBG2MBXV0KCBF','-','{"number":10,"seconds":60.0}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB776ADS9RE87R88NX7Z','-','{"number":11,"seconds":60.0}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB81NXFZ1GKCMQT875CJ','-','{"number": 3}',NULL);
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
INSERT INTO "jobs" VALUES(1,'01JGGVSAVTR2MWPG1MFNZ9QAD7','work','default',1.73573280037804412835e+09,1.73573280065349245075e+09,'-','DONE',7,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1735732800.52906,NULL,NULL,1.73573280065349245075e+09,NULL,NULL,'1',NULL,NULL,NULL,'[{"name":"first","status":"DONE"},{"name":"second","status":"DONE"}]',NULL,NULL,NULL,NULL,'0d4fc121d6e65a9e1c933b5c6bbed872',0);
INSERT INTO "jobs" VALUES(2,'01JGGVSAWS2Q7QGRMFQMFW08ZS','half','default',1.7357328004095642567e+09,1.73573280068170952795e+09,'-','PARTIAL_SUCCESS',3,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280056365394593e+09,NULL,NULL,1.73573280068170952795e+09,NULL,NULL,'{"done":1}',NULL,'{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"e58628816fa28d9166cfb2c38c2e14e6","errors":[{"code":"MISSING","message":"the other half"}]}',NULL,NULL,NULL,NULL,NULL,NULL,'e58628816fa28d9166cfb2c38c2e14e6',0);
INSERT INTO "jobs" VALUES(3,'01JGGVSAXDATN8JR1X75S1AMX1','paint','default',1.7357328004299485683e+09,1.73573280066171789165e+09,'-','DONE',3,1,0,NULL,NULL,NULL,NULL,1,101,0,0,1,NULL,NULL,1.73573280065349245075e+09,NULL,NULL,1.73573280066171789165e+09,NULL,NULL,'10',NULL,NULL,NULL,NULL,'[{"name":"picture.bin","content_type":"application/octet-stream","size":10,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","blob":"01JGGVSAXDATN8JR1X75S1AMX1/1/picture.bin"}]',NULL,NULL,NULL,'2ffbd2b1a1f33dd262af56b51835f4f6',0);
INSERT INTO "jobs" VALUES(4,'01JGGVSAXWZBCKYGVM70KDGXGT','fail','default',1.73573280044435930254e+09,1.73573280066410684584e+09,'-','ERROR',3,1,0,NULL,NULL,NULL,NULL,1,1,1,0,1,NULL,NULL,1.73573280066171789165e+09,NULL,NULL,1.73573280066410684584e+09,NULL,NULL,NULL,NULL,'{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"10ddb40ae0d856df6f78aa376772de29"}',NULL,NULL,NULL,NULL,NULL,NULL,'10ddb40ae0d856df6f78aa376772de29',0);
INSERT INTO "jobs" VALUES(5,'01JGGVSAYANDQTEGG4VN8JXY34','work','default',1.73573280045848321907e+09,1.73573280066765093807e+09,'-','DONE',7,1,0,'{"of":"ann"}',NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280066410684584e+09,NULL,NULL,1.73573280066765093807e+09,NULL,NULL,'2',NULL,NULL,NULL,'[{"name":"first","status":"DONE"},{"name":"second","status":"DONE"}]',NULL,NULL,NULL,NULL,'d7eaaa43aeb19ccd3a8ddd45c457cb21',0);
INSERT INTO "jobs" VALUES(6,'01JGGVSB5V3BJ1HHCJPNTYCFZ4','heal','default',1.73573280069950294495e+09,1.73573280070472502709e+09,'-','RETRYING',3,1,0,NULL,NULL,1.73573283025417828559e+09,NULL,1,2,1,0,1,NULL,NULL,1.73573280069975185392e+09,1.73573283025417828559e+09,NULL,NULL,NULL,NULL,NULL,NULL,'{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"3255a2cf20d519bc24fc6d87002c6f8f"}',NULL,NULL,NULL,NULL,NULL,NULL,'3255a2cf20d519bc24fc6d87002c6f8f',0);
INSERT INTO "jobs" VALUES(7,'01JGGVSB6NNAGPM46S35X2RYA5','work','default',1.73573280072572398184e+09,1.73573280072572398184e+09,'-','PENDING',1,1,0,'{"of":"ann"}',4102444800.0,4102444800.0,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'fef111da435160700237643b4fc0e5f4',0);
INSERT INTO "jobs" VALUES(8,'01JGGVSB6SXGCFB0FPPZEZTZCG','work','default',1735732800.72981,1.73573280073175382608e+09,'-','CANCELLED',2,1,0,'{"of":"ann"}',4102444800.0,NULL,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,1.73573280073175382608e+09,1.73573280073175382608e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'dc62aefa6315227747013ef676dff4ad',0);
INSERT INTO "jobs" VALUES(9,'01JGGVSB6YKTT4W6ZPKANY0WM2','rest','other',1.73573280073440718647e+09,1.73573280073440718647e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573280073440718647e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'5e382eafcb6ee07003bf68e73a233c72',1);
INSERT INTO "jobs" VALUES(10,'01JGGVSB71BXFRKHNEBNXC0B9J','family','default',1.7357328007378737926e+09,1.73573280074693369863e+09,'-','PROCESSING',5,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280073809909813e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"job_id":"01JGGVSB76H0XSBG2MBXV0KCBF","kind":"work","key":"work#1","status":null},{"job_id":"01JGGVSB776ADS9RE87R88NX7Z","kind":"work","key":"work#2","status":null}]','["01JGGVSB76H0XSBG2MBXV0KCBF","01JGGVSB776ADS9RE87R88NX7Z"]','b65184d83ba0d4b0ef8cd77956bbcf16',0);
INSERT INTO "jobs" VALUES(11,'01JGGVSB76H0XSBG2MBXV0KCBF','work','default',1.73573280074347209922e+09,1.73573280074693369863e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:14814',1.73573283074403309821e+09,1.73573280074403309821e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE"}]',NULL,'01JGGVSB71BXFRKHNEBNXC0B9J',NULL,NULL,'b65184d83ba0d4b0ef8cd77956bbcf16',0);
INSERT INTO "jobs" VALUES(12,'01JGGVSB776ADS9RE87R88NX7Z','work','default',1.73573280074575018883e+09,1.73573280074858713145e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:14814',1.73573283074693369867e+09,1.73573280074693369863e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE"}]',NULL,'01JGGVSB71BXFRKHNEBNXC0B9J',NULL,NULL,'b65184d83ba0d4b0ef8cd77956bbcf16',0);
INSERT INTO "jobs" VALUES(13,'01JGGVSB81NXFZ1GKCMQT875CJ','work','default',1.73573280076966476436e+09,1.73573280076966476436e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573280076966476436e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'ebd8415adff8843c66680bb147a62175',1);
CREATE TABLE keys (
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  fingerprint BLOB NOT NULL,
  job_id TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (tenant, kind, key)
) WITHOUT ROWID;
INSERT INTO "keys" VALUES('-','work','one',X'696C9423A246C064756A887F9C1DD1568C39500D0D6C6F913B5CF6936662980F','01JGGVSAYANDQTEGG4VN8JXY34',1.7357328004589219093e+09);
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
INSERT INTO "steps" VALUES('01JGGVSAVTR2MWPG1MFNZ9QAD7','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280065004611019e+09);
INSERT INTO "steps" VALUES('01JGGVSAVTR2MWPG1MFNZ9QAD7','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573280065242505076e+09);
INSERT INTO "steps" VALUES('01JGGVSAYANDQTEGG4VN8JXY34','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280066572904582e+09);
INSERT INTO "steps" VALUES('01JGGVSAYANDQTEGG4VN8JXY34','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573280066669845579e+09);
INSERT INTO "steps" VALUES('01JGGVSB76H0XSBG2MBXV0KCBF','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280074693369863e+09);
INSERT INTO "steps" VALUES('01JGGVSB776ADS9RE87R88NX7Z','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280074858713145e+09);
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
