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
INSERT INTO "events" VALUES(1,'-','01JGGVSC8WY0YKKHKTKC1W6MNE','status',1.73573280182024884221e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732801.820005}');
INSERT INTO "events" VALUES(2,'-','01JGGVSC9JNAA8NN0SSFQNVSJR','status',1.73573280184250831599e+09,'{"kind":"half","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732801.8422873}');
INSERT INTO "events" VALUES(3,'-','01JGGVSC8WY0YKKHKTKC1W6MNE','status',1.7357328018556632996e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:14138","waited":0.03565835952758789}');
INSERT INTO "events" VALUES(4,'-','01JGGVSC9Z252GSRNDRWDP5AJJ','status',1.7357328018556632996e+09,'{"kind":"paint","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732801.8554862}');
INSERT INTO "events" VALUES(5,'-','01JGGVSCAF2WY9DW529FQN1VV5','status',1.73573280187152886389e+09,'{"kind":"fail","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732801.8711126}');
INSERT INTO "events" VALUES(6,'-','01JGGVSCB5PKHZGNADT60Q2T5E','status',1.73573280189436340327e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"due":1735732801.8939326}');
INSERT INTO "events" VALUES(7,'-','01JGGVSC9JNAA8NN0SSFQNVSJR','status',1.73573280212823915485e+09,'{"kind":"half","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:14138","waited":0.2859518527984619}');
INSERT INTO "events" VALUES(8,'-','01JGGVSC8WY0YKKHKTKC1W6MNE','step',1.73573280226227593422e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:14138","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(9,'-','01JGGVSC8WY0YKKHKTKC1W6MNE','step',1.73573280226227593422e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:14138","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(10,'-','01JGGVSC8WY0YKKHKTKC1W6MNE','step',1.73573280227867674831e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"worker":"host:14138","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(11,'-','01JGGVSC8WY0YKKHKTKC1W6MNE','step',1.73573280227867674831e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"worker":"host:14138","step":{"name":"second","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(12,'-','01JGGVSC8WY0YKKHKTKC1W6MNE','status',1.73573280228445315362e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"seconds":0.4287898540496826}');
INSERT INTO "events" VALUES(13,'-','01JGGVSC9Z252GSRNDRWDP5AJJ','status',1.73573280228445315362e+09,'{"kind":"paint","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:14138","waited":0.4289669990539551}');
INSERT INTO "events" VALUES(14,'-','01JGGVSC9Z252GSRNDRWDP5AJJ','status',1.73573280234022688864e+09,'{"kind":"paint","queue":"default","status":"DONE","version":3,"run":1,"attempt":1,"fence":1,"seconds":0.05577373504638672}');
INSERT INTO "events" VALUES(15,'-','01JGGVSCAF2WY9DW529FQN1VV5','status',1.73573280234022688864e+09,'{"kind":"fail","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:14138","waited":0.4691143035888672}');
INSERT INTO "events" VALUES(16,'-','01JGGVSCAF2WY9DW529FQN1VV5','status',1.73573280235946464543e+09,'{"kind":"fail","queue":"default","status":"ERROR","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"507bcb119717c54cdd2eff1627d20ab0"},"seconds":0.019237756729125977}');
INSERT INTO "events" VALUES(17,'-','01JGGVSCB5PKHZGNADT60Q2T5E','status',1.73573280235946464543e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:14138","waited":0.4655320644378662}');
INSERT INTO "events" VALUES(18,'-','01JGGVSC9JNAA8NN0SSFQNVSJR','status',1.73573280237110233307e+09,'{"kind":"half","queue":"default","status":"PARTIAL_SUCCESS","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"2ebb4bd38b0ab98c9564e9511c4e7bb4","errors":[{"code":"MISSING","message":"the other half"}]},"seconds":0.24286317825317383}');
INSERT INTO "events" VALUES(19,'-','01JGGVSCB5PKHZGNADT60Q2T5E','step',1.73573280237991189956e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:14138","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(20,'-','01JGGVSCB5PKHZGNADT60Q2T5E','step',1.73573280237991189956e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:14138","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(21,'-','01JGGVSCB5PKHZGNADT60Q2T5E','step',1.73573280238493490214e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:14138","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(22,'-','01JGGVSCB5PKHZGNADT60Q2T5E','step',1.73573280238493490214e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:14138","step":{"name":"second","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(23,'-','01JGGVSCB5PKHZGNADT60Q2T5E','status',1.73573280238686752322e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"seconds":0.027402877807617188}');
INSERT INTO "events" VALUES(24,'-','01JGGVSCTWSTZCDYJJSWXJPAHR','status',1.73573280239678478242e+09,'{"kind":"heal","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732802.3965125}');
INSERT INTO "events" VALUES(25,'-','01JGGVSCTWSTZCDYJJSWXJPAHR','status',1.73573280239678478242e+09,'{"kind":"heal","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:14138","waited":0.0002722740173339844}');
INSERT INTO "events" VALUES(26,'-','01JGGVSCTWSTZCDYJJSWXJPAHR','status',1.73573280240171933172e+09,'{"kind":"heal","queue":"default","status":"RETRYING","version":3,"run":1,"attempt":1,"fence":1,"due":1735733191.0633237,"nextAttemptAt":1735733191.0633237,"error":{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"f184937ce60bee745edb6b5af3354424"}}');
INSERT INTO "events" VALUES(27,'-','01JGGVSCVF0P2QEQPPWXAQ11EM','status',1.73573280241570043563e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"due":4102444800.0}');
INSERT INTO "events" VALUES(28,'-','01JGGVSCVH1S7XJA4ZKE2M9VFD','status',1.73573280242029905325e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"due":4102444800.0}');
INSERT INTO "events" VALUES(29,'-','01JGGVSCVH1S7XJA4ZKE2M9VFD','status',1.73573280242344975474e+09,'{"kind":"work","queue":"default","status":"CANCELLED","version":2,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"cancelAsked":true}');
INSERT INTO "events" VALUES(30,'-','','queue',1.73573280243113613132e+09,'{"queue":"other","paused":true}');
INSERT INTO "events" VALUES(31,'-','01JGGVSCW00K8XBCZ4TY7396AC','status',1.73573280243305587767e+09,'{"kind":"rest","queue":"other","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732802.4329085}');
INSERT INTO "events" VALUES(32,'-','01JGGVSCW57SSTQX1K2N1K2VFT','status',1.73573280243736195564e+09,'{"kind":"family","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732802.4371505}');
INSERT INTO "events" VALUES(33,'-','01JGGVSCW57SSTQX1K2N1K2VFT','status',1.73573280243736195564e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:14138","waited":0.00021147727966308594}');
INSERT INTO "events" VALUES(34,'-','01JGGVSCWGR5Z732D7FGVF8XBY','status',1.73573280244599032406e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732802.4449067}');
INSERT INTO "events" VALUES(35,'-','01JGGVSCW57SSTQX1K2N1K2VFT','status',1.73573280244599032406e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:14138"}');
INSERT INTO "events" VALUES(36,'-','01JGGVSCWGR5Z732D7FGVF8XBY','status',1.73573280244599032406e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:14138","waited":0.0010836124420166016}');
INSERT INTO "events" VALUES(37,'-','01JGGVSCWG0K81JF2AZQH1TZFR','status',1.73573280244932031625e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732802.4492178}');
INSERT INTO "events" VALUES(38,'-','01JGGVSCW57SSTQX1K2N1K2VFT','status',1.73573280244932031625e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:14138"}');
INSERT INTO "events" VALUES(39,'-','01JGGVSCWGR5Z732D7FGVF8XBY','step',1.73573280245446372031e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:14138","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(40,'-','01JGGVSCWGR5Z732D7FGVF8XBY','step',1.73573280245446372031e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:14138","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(41,'-','01JGGVSCW57SSTQX1K2N1K2VFT','status',1.73573280245446372031e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"parked":true}');
INSERT INTO "events" VALUES(42,'-','01JGGVSCWG0K81JF2AZQH1TZFR','status',1.73573280245446372031e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:14138","waited":0.00524592399597168}');
INSERT INTO "events" VALUES(43,'-','01JGGVSCWG0K81JF2AZQH1TZFR','step',1.73573280246605348591e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:14138","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(44,'-','01JGGVSCWG0K81JF2AZQH1TZFR','step',1.73573280246605348591e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:14138","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(45,'-','01JGGVSCXV99NMEZWFQRGEG1N1','status',1.73573280249186897281e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732802.491709}');
CREATE TABLE inputs (
  job_id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  input TEXT NOT NULL,
  files TEXT
, search TEXT) WITHOUT ROWID;
INSERT INTO "inputs" VALUES('01JGGVSC8WY0YKKHKTKC1W6MNE','-','{"number": 1}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSC9JNAA8NN0SSFQNVSJR','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSC9Z252GSRNDRWDP5AJJ','-','{"size": 10}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSCAF2WY9DW529FQN1VV5','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSCB5PKHZGNADT60Q2T5E','-','{"number": 2}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSCTWSTZCDYJJSWXJPAHR','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSCVF0P2QEQPPWXAQ11EM','-','{"number": 2}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSCVH1S7XJA4ZKE2M9VFD','-','{"number": 2}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSCW00K8XBCZ4TY7396AC','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSCW57SSTQX1K2N1K2VFT','-','{"number": 10, "seconds": 60}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSCWG0K81JF2AZQH1TZFR','-','{"number":11,"seconds":60.0}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSCWGR5Z732D7FGVF8XBY','-','{"number":10,"seconds":60.0}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSCXV99NMEZWFQRGEG1N1','-','{"number": 3}',NULL,NULL);
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
  -- 1: due and waiting for a worker; claims read only these rows
  ready INTEGER NOT NULL DEFAULT 0
, lease_seconds REAL, loss_record TEXT, overdue_at REAL, webhook TEXT);
INSERT INTO "jobs" VALUES(1,'01JGGVSC8WY0YKKHKTKC1W6MNE','work','default',1.73573280182000493996e+09,1.73573280228445315362e+09,'-','DONE',7,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.7357328018556632996e+09,NULL,NULL,1.73573280228445315362e+09,NULL,NULL,'1',NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732802.262276,"finished_at":1735732802.262276},{"name":"second","status":"DONE","started_at":1735732802.2786767,"finished_at":1735732802.2786767}]',NULL,NULL,NULL,NULL,'bdbe1fbc9d1baccea728367c9d681c2b',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(2,'01JGGVSC9JNAA8NN0SSFQNVSJR','half','default',1.73573280184228730203e+09,1.73573280237110233307e+09,'-','PARTIAL_SUCCESS',3,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280212823915485e+09,NULL,NULL,1.73573280237110233307e+09,NULL,NULL,'{"done":1}',NULL,'{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"2ebb4bd38b0ab98c9564e9511c4e7bb4","errors":[{"code":"MISSING","message":"the other half"}]}',NULL,NULL,NULL,NULL,NULL,NULL,'2ebb4bd38b0ab98c9564e9511c4e7bb4',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(3,'01JGGVSC9Z252GSRNDRWDP5AJJ','paint','default',1.73573280185548615454e+09,1.73573280234022688864e+09,'-','DONE',3,1,0,NULL,NULL,NULL,NULL,1,101,0,0,1,NULL,NULL,1.73573280228445315362e+09,NULL,NULL,1.73573280234022688864e+09,NULL,NULL,'10',NULL,NULL,NULL,NULL,'[{"name":"picture.bin","content_type":"application/octet-stream","size":10,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","blob":"01JGGVSC9Z252GSRNDRWDP5AJJ/1.10de952e/picture.bin"}]',NULL,NULL,NULL,'cc2240c1a0abc2c7f56eee35c8ac8694',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(4,'01JGGVSCAF2WY9DW529FQN1VV5','fail','default',1.73573280187111258512e+09,1.73573280235946464543e+09,'-','ERROR',3,1,0,NULL,NULL,NULL,NULL,1,1,1,0,1,NULL,NULL,1.73573280234022688864e+09,NULL,NULL,1.73573280235946464543e+09,NULL,NULL,NULL,NULL,'{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"507bcb119717c54cdd2eff1627d20ab0"}',NULL,NULL,NULL,NULL,NULL,NULL,'507bcb119717c54cdd2eff1627d20ab0',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(5,'01JGGVSCB5PKHZGNADT60Q2T5E','work','default',1.73573280189393258088e+09,1.73573280238686752322e+09,'-','DONE',7,1,0,'{"of":"ann"}',NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280235946464543e+09,NULL,NULL,1.73573280238686752322e+09,NULL,NULL,'2',NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732802.379912,"finished_at":1735732802.379912},{"name":"second","status":"DONE","started_at":1735732802.384935,"finished_at":1735732802.384935}]',NULL,NULL,NULL,NULL,'3fb23db2562ee541209bf717803e551e',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(6,'01JGGVSCTWSTZCDYJJSWXJPAHR','heal','default',1.73573280239651250834e+09,1.73573280240171933172e+09,'-','RETRYING',3,1,0,NULL,NULL,1.73573319106332373614e+09,NULL,1,2,1,0,1,NULL,NULL,1.73573280239678478242e+09,1.73573319106332373614e+09,NULL,NULL,NULL,NULL,NULL,NULL,'{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"f184937ce60bee745edb6b5af3354424"}',NULL,NULL,NULL,NULL,NULL,NULL,'f184937ce60bee745edb6b5af3354424',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(7,'01JGGVSCVF0P2QEQPPWXAQ11EM','work','default',1.73573280241544485088e+09,1.73573280241544485088e+09,'-','PENDING',1,1,0,'{"of":"ann"}',4102444800.0,4102444800.0,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'45415ea2478ee7d86eb743fe36e593e8',0,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(8,'01JGGVSCVH1S7XJA4ZKE2M9VFD','work','default',1.73573280241779255867e+09,1.73573280242344975474e+09,'-','CANCELLED',2,1,0,'{"of":"ann"}',4102444800.0,NULL,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,1.73573280242344975474e+09,1.73573280242344975474e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'153d5248de103780f1d04c14801f334f',0,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(9,'01JGGVSCW00K8XBCZ4TY7396AC','rest','other',1.73573280243290853502e+09,1.73573280243290853502e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573280243290853502e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'cdc21d6acbd6b66a4577e51d8cafd62d',1,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(10,'01JGGVSCW57SSTQX1K2N1K2VFT','family','default',1.73573280243715047832e+09,1.73573280245446372031e+09,'-','PROCESSING',5,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280243736195564e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"job_id":"01JGGVSCWGR5Z732D7FGVF8XBY","kind":"work","key":"work#1","status":null},{"job_id":"01JGGVSCWG0K81JF2AZQH1TZFR","kind":"work","key":"work#2","status":null}]','["01JGGVSCWGR5Z732D7FGVF8XBY","01JGGVSCWG0K81JF2AZQH1TZFR"]','10fccb77525390093403d7b9d8e7f291',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(11,'01JGGVSCWGR5Z732D7FGVF8XBY','work','default',1.73573280244490671161e+09,1.73573280245446372031e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:14138',1.73573283244599032397e+09,1.73573280244599032406e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732802.4544637,"finished_at":1735732802.4544637}]',NULL,'01JGGVSCW57SSTQX1K2N1K2VFT',NULL,NULL,'10fccb77525390093403d7b9d8e7f291',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(12,'01JGGVSCWG0K81JF2AZQH1TZFR','work','default',1.73573280244921779626e+09,1.73573280246605348591e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:14138',1.73573283245446372035e+09,1.73573280245446372031e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732802.4660535,"finished_at":1735732802.4660535}]',NULL,'01JGGVSCW57SSTQX1K2N1K2VFT',NULL,NULL,'10fccb77525390093403d7b9d8e7f291',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(13,'01JGGVSCXV99NMEZWFQRGEG1N1','work','default',1.73573280249170899388e+09,1.73573280249170899388e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573280249170899388e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'bcb34324b6937f59adb84c2cc1b4d1ea',1,NULL,NULL,NULL,NULL);
CREATE TABLE keys (
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  fingerprint BLOB NOT NULL,
  job_id TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (tenant, kind, key)
) WITHOUT ROWID;
INSERT INTO "keys" VALUES('-','work','one',X'696C9423A246C064756A887F9C1DD1568C39500D0D6C6F913B5CF6936662980F','01JGGVSCB5PKHZGNADT60Q2T5E',1.73573280189436340327e+09);
CREATE TABLE log_state (name TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "log_state" VALUES('epoch','955f4eca');
INSERT INTO "log_state" VALUES('floor','0');
CREATE TABLE queues (
  tenant TEXT NOT NULL,
  name TEXT NOT NULL,
  paused INTEGER NOT NULL,
  PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
INSERT INTO "queues" VALUES('-','other',1);
CREATE TABLE records (
  tenant TEXT NOT NULL,
  collection TEXT NOT NULL,
  name TEXT NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (tenant, collection, name)
) WITHOUT ROWID;
CREATE TABLE search_backfill (after TEXT NOT NULL, last TEXT NOT NULL);
CREATE TABLE search_terms (
  tenant TEXT NOT NULL,
  value TEXT NOT NULL,
  field TEXT NOT NULL, -- label.KEY, step or input.PATH
  kind TEXT NOT NULL,
  queue TEXT NOT NULL,
  job_id TEXT NOT NULL,
  PRIMARY KEY (tenant, value, field, kind, queue, job_id)
) WITHOUT ROWID;
INSERT INTO "search_terms" VALUES('-','ann','label.of','work','default','01JGGVSCB5PKHZGNADT60Q2T5E');
INSERT INTO "search_terms" VALUES('-','ann','label.of','work','default','01JGGVSCVF0P2QEQPPWXAQ11EM');
INSERT INTO "search_terms" VALUES('-','ann','label.of','work','default','01JGGVSCVH1S7XJA4ZKE2M9VFD');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSC8WY0YKKHKTKC1W6MNE');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSCB5PKHZGNADT60Q2T5E');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSCWG0K81JF2AZQH1TZFR');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSCWGR5Z732D7FGVF8XBY');
INSERT INTO "search_terms" VALUES('-','second','step','work','default','01JGGVSC8WY0YKKHKTKC1W6MNE');
INSERT INTO "search_terms" VALUES('-','second','step','work','default','01JGGVSCB5PKHZGNADT60Q2T5E');
CREATE TABLE steps (
  job_id TEXT NOT NULL,
  name TEXT NOT NULL,
  tenant TEXT NOT NULL,
  result TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (job_id, name)
) WITHOUT ROWID;
INSERT INTO "steps" VALUES('01JGGVSC8WY0YKKHKTKC1W6MNE','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280226227593422e+09);
INSERT INTO "steps" VALUES('01JGGVSC8WY0YKKHKTKC1W6MNE','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573280227867674831e+09);
INSERT INTO "steps" VALUES('01JGGVSCB5PKHZGNADT60Q2T5E','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280237991189956e+09);
INSERT INTO "steps" VALUES('01JGGVSCB5PKHZGNADT60Q2T5E','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573280238493490214e+09);
INSERT INTO "steps" VALUES('01JGGVSCWG0K81JF2AZQH1TZFR','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280246605348591e+09);
INSERT INTO "steps" VALUES('01JGGVSCWGR5Z732D7FGVF8XBY','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280245446372031e+09);
CREATE TABLE store_id (id TEXT NOT NULL);
INSERT INTO "store_id" VALUES('f2929997d2e22287f817918aa73f1114');
CREATE TABLE tombstones (
  id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE upload_uses (
  upload_id TEXT NOT NULL,
  job_id TEXT NOT NULL,
  tenant TEXT NOT NULL,
  PRIMARY KEY (upload_id, job_id)
) WITHOUT ROWID;
CREATE TABLE uploads (
  id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  status TEXT NOT NULL,
  replica TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  updated_at REAL NOT NULL,
  expires_at REAL,
  record TEXT NOT NULL,
  -- the job that it creates; a separate column, because it is written once
  submission TEXT
, reserved INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
INSERT INTO "uploads" VALUES('01JGGVSC5RRMA2JZTJSWX8AC8C','-','DONE','host',10,1.7357328017559556961e+09,4.7357328017559556961e+09,'{"id":"01JGGVSC5RRMA2JZTJSWX8AC8C","way":"tus","name":"file","created_at":1735732801.72081,"updated_at":1735732801.7559557,"content_type":"application/octet-stream","tenant":"-","status":"DONE","replica":"host","past_service":false,"size":10,"received":10,"promised":null,"expires_at":4735732801.755956,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","detected":"","blob":"uploads/01JGGVSC5RRMA2JZTJSWX8AC8C/content","chunk_size":null,"chunks":"0","partial":false,"parts":[],"metadata":"","submission":null,"parameter":null,"key":null,"trace_id":null,"job_id":null,"replayed":false}',NULL,0);
INSERT INTO "uploads" VALUES('01JGGVSC7TSX4QMHSCCCSW8JKQ','-','UPLOADING','host',10,1.7357328018058919907e+09,4.73573280180569458012e+09,'{"id":"01JGGVSC7TSX4QMHSCCCSW8JKQ","way":"tus","name":"file","created_at":1735732801.78665,"updated_at":1735732801.805892,"content_type":"application/octet-stream","tenant":"-","status":"UPLOADING","replica":"host","past_service":false,"size":20,"received":10,"promised":null,"expires_at":4735732801.805695,"sha256":"","detected":"","blob":null,"chunk_size":null,"chunks":"0","partial":false,"parts":[],"metadata":"","submission":null,"parameter":null,"key":null,"trace_id":null,"job_id":null,"replayed":false}',NULL,10);
CREATE TABLE write_check (
  id INTEGER PRIMARY KEY,
  at REAL NOT NULL
);
CREATE INDEX jobs_claim ON jobs (queue, kind, priority DESC, seq) WHERE ready = 1;
CREATE INDEX jobs_due ON jobs (due) WHERE ready = 0 AND due IS NOT NULL;
CREATE INDEX jobs_deadline ON jobs (deadline) WHERE deadline IS NOT NULL AND finished_at IS NULL;
CREATE INDEX jobs_expiry ON jobs (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX keys_at ON keys (at);
CREATE INDEX keys_job ON keys (job_id);
CREATE INDEX tombstones_at ON tombstones (at);
CREATE INDEX uploads_expiry ON uploads (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX uploads_unfinished ON uploads (replica, updated_at) WHERE status = 'UPLOADING';
CREATE INDEX upload_uses_job ON upload_uses (job_id);
CREATE INDEX events_job ON events (tenant, job_id, id);
CREATE INDEX events_tenant ON events (tenant, id);
CREATE INDEX events_kept ON events (at) WHERE type IN ('deleted', 'queue');
CREATE INDEX jobs_facets ON jobs (tenant, status, kind, queue, id);
CREATE INDEX jobs_code ON jobs (tenant, json_extract(error, '$.code'), status, kind, queue, id) WHERE error IS NOT NULL;
CREATE INDEX jobs_longest ON jobs (tenant, status, kind, queue, finished_at - started_at, id) WHERE finished_at - started_at >= 0.01;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',45);
COMMIT;
