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
INSERT INTO "events" VALUES(1,'-','01JGGVSAZSRJBR3HKAB05GEFB7','status',1.73573280050577163696e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.5054193}');
INSERT INTO "events" VALUES(2,'-','01JGGVSB011493S4A2KDPD5523','status',1.73573280051408600807e+09,'{"kind":"half","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.5138478}');
INSERT INTO "events" VALUES(3,'-','01JGGVSB06J34VXE2GCQ6R212D','status',1.73573280051883649822e+09,'{"kind":"paint","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.5186641}');
INSERT INTO "events" VALUES(4,'-','01JGGVSB0C05NW7SXHCCNKNAY9','status',1.73573280052452540394e+09,'{"kind":"fail","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.5243337}');
INSERT INTO "events" VALUES(5,'-','01JGGVSB0FZBBMHX8EPSJKD8G3','status',1.73573280052880883216e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.5278363}');
INSERT INTO "events" VALUES(6,'-','01JGGVSAZSRJBR3HKAB05GEFB7','status',1.73573280061582112306e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:22662"}');
INSERT INTO "events" VALUES(7,'-','01JGGVSB011493S4A2KDPD5523','status',1.73573280069415736195e+09,'{"kind":"half","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:22662"}');
INSERT INTO "events" VALUES(8,'-','01JGGVSAZSRJBR3HKAB05GEFB7','step',1.73573280072671914096e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:22662","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(9,'-','01JGGVSAZSRJBR3HKAB05GEFB7','step',1.73573280072671914096e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:22662","step":{"name":"first","status":"DONE"}}');
INSERT INTO "events" VALUES(10,'-','01JGGVSAZSRJBR3HKAB05GEFB7','step',1.73573280073197746273e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"worker":"host:22662","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(11,'-','01JGGVSAZSRJBR3HKAB05GEFB7','step',1.73573280073460340495e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"worker":"host:22662","step":{"name":"second","status":"DONE"}}');
INSERT INTO "events" VALUES(12,'-','01JGGVSAZSRJBR3HKAB05GEFB7','status',1.73573280074102234845e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"seconds":0.12520122528076172}');
INSERT INTO "events" VALUES(13,'-','01JGGVSB06J34VXE2GCQ6R212D','status',1.73573280074102234845e+09,'{"kind":"paint","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:22662"}');
INSERT INTO "events" VALUES(14,'-','01JGGVSB06J34VXE2GCQ6R212D','status',1.73573280075345182417e+09,'{"kind":"paint","queue":"default","status":"DONE","version":3,"run":1,"attempt":1,"fence":1,"seconds":0.012429475784301758}');
INSERT INTO "events" VALUES(15,'-','01JGGVSB0C05NW7SXHCCNKNAY9','status',1.73573280075345182417e+09,'{"kind":"fail","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:22662"}');
INSERT INTO "events" VALUES(16,'-','01JGGVSB0C05NW7SXHCCNKNAY9','status',1.73573280075695133206e+09,'{"kind":"fail","queue":"default","status":"ERROR","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"04506786a672d6e1524886d426b253e1"},"seconds":0.0034995079040527344}');
INSERT INTO "events" VALUES(17,'-','01JGGVSB0FZBBMHX8EPSJKD8G3','status',1.73573280075695133206e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:22662"}');
INSERT INTO "events" VALUES(18,'-','01JGGVSB0FZBBMHX8EPSJKD8G3','step',1.7357328007647867203e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:22662","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(19,'-','01JGGVSB0FZBBMHX8EPSJKD8G3','step',1.73573280076761150359e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:22662","step":{"name":"first","status":"DONE"}}');
INSERT INTO "events" VALUES(20,'-','01JGGVSB0FZBBMHX8EPSJKD8G3','step',1735732800.76984,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"worker":"host:22662","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(21,'-','01JGGVSB0FZBBMHX8EPSJKD8G3','step',1735732800.76984,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"worker":"host:22662","step":{"name":"second","status":"DONE"}}');
INSERT INTO "events" VALUES(22,'-','01JGGVSB0FZBBMHX8EPSJKD8G3','status',1.73573280077168750766e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"seconds":0.014736175537109375}');
INSERT INTO "events" VALUES(23,'-','01JGGVSB011493S4A2KDPD5523','status',1.73573280081091547012e+09,'{"kind":"half","queue":"default","status":"PARTIAL_SUCCESS","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"abbe540cdab1db52fdbdf89b517c44a5","errors":[{"code":"MISSING","message":"the other half"}]},"seconds":0.11675810813903809}');
INSERT INTO "events" VALUES(24,'-','01JGGVSBA5XC3TZYFBX9JXSAHK','status',1.73573280083937358858e+09,'{"kind":"heal","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.8373985}');
INSERT INTO "events" VALUES(25,'-','01JGGVSBA5XC3TZYFBX9JXSAHK','status',1.73573280083937358858e+09,'{"kind":"heal","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:22662"}');
INSERT INTO "events" VALUES(26,'-','01JGGVSBA5XC3TZYFBX9JXSAHK','status',1.73573280084332513808e+09,'{"kind":"heal","queue":"default","status":"RETRYING","version":3,"run":1,"attempt":1,"fence":1,"due":1735732984.6613767,"nextAttemptAt":1735732984.6613767,"error":{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"47ae0666ac571b61d9bdbfdc79ea75ad"}}');
INSERT INTO "events" VALUES(27,'-','01JGGVSBB1YZKHXZJMYJR3JMRT','status',1.73573280086592268939e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":4102444800.0}');
INSERT INTO "events" VALUES(28,'-','01JGGVSBB3AE1M5TSQNFJSDMXM','status',1.7357328008677725792e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":4102444800.0}');
INSERT INTO "events" VALUES(29,'-','01JGGVSBB3AE1M5TSQNFJSDMXM','status',1.73573280087050771719e+09,'{"kind":"work","queue":"default","status":"CANCELLED","version":2,"run":1,"attempt":0,"fence":0,"cancelAsked":true}');
INSERT INTO "events" VALUES(30,'-','01JGGVSBBDC8P2GD8AYEQPATYB','status',1.73573280087882184986e+09,'{"kind":"rest","queue":"other","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.8778052}');
INSERT INTO "events" VALUES(31,'-','01JGGVSBBG62G1CGDHFG8CK34N','status',1.73573280088067436214e+09,'{"kind":"family","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.88048}');
INSERT INTO "events" VALUES(32,'-','01JGGVSBBG62G1CGDHFG8CK34N','status',1.73573280088067436214e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:22662"}');
INSERT INTO "events" VALUES(33,'-','01JGGVSBBNJEW38B3HNQ3G79E4','status',1.73573280088694024093e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.8856494}');
INSERT INTO "events" VALUES(34,'-','01JGGVSBBG62G1CGDHFG8CK34N','status',1.73573280088694024093e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:22662"}');
INSERT INTO "events" VALUES(35,'-','01JGGVSBBNJEW38B3HNQ3G79E4','status',1.73573280088694024093e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:22662"}');
INSERT INTO "events" VALUES(36,'-','01JGGVSBBNHBAY3VHJ9W08BYTD','status',1.73573280088916373246e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.8880572}');
INSERT INTO "events" VALUES(37,'-','01JGGVSBBG62G1CGDHFG8CK34N','status',1.73573280088916373246e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:22662"}');
INSERT INTO "events" VALUES(38,'-','01JGGVSBBNJEW38B3HNQ3G79E4','step',1.73573280088916373246e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:22662","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(39,'-','01JGGVSBBNJEW38B3HNQ3G79E4','step',1.73573280088916373246e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:22662","step":{"name":"first","status":"DONE"}}');
INSERT INTO "events" VALUES(40,'-','01JGGVSBBG62G1CGDHFG8CK34N','status',1.73573280089109301571e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"parked":true}');
INSERT INTO "events" VALUES(41,'-','01JGGVSBBNHBAY3VHJ9W08BYTD','status',1.73573280089234971996e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:22662"}');
INSERT INTO "events" VALUES(42,'-','01JGGVSBBNHBAY3VHJ9W08BYTD','step',1.73573280089590477942e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:22662","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(43,'-','01JGGVSBBNHBAY3VHJ9W08BYTD','step',1.73573280089590477942e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:22662","step":{"name":"first","status":"DONE"}}');
INSERT INTO "events" VALUES(44,'-','01JGGVSBCM384GNCWEB5RA88QD','status',1.73573280091689443587e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.9167433}');
CREATE TABLE inputs (
  job_id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  input TEXT NOT NULL,
  files TEXT
) WITHOUT ROWID;
INSERT INTO "inputs" VALUES('01JGGVSAZSRJBR3HKAB05GEFB7','-','{"number": 1}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB011493S4A2KDPD5523','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB06J34VXE2GCQ6R212D','-','{"size": 10}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB0C05NW7SXHCCNKNAY9','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB0FZBBMHX8EPSJKD8G3','-','{"number": 2}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBA5XC3TZYFBX9JXSAHK','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBB1YZKHXZJMYJR3JMRT','-','{"number": 2}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBB3AE1M5TSQNFJSDMXM','-','{"number": 2}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBBDC8P2GD8AYEQPATYB','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBBG62G1CGDHFG8CK34N','-','{"number": 10, "seconds": 60}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBBNHBAY3VHJ9W08BYTD','-','{"number":11,"seconds":60.0}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBBNJEW38B3HNQ3G79E4','-','{"number":10,"seconds":60.0}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBCM384GNCWEB5RA88QD','-','{"number": 3}',NULL);
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
INSERT INTO "jobs" VALUES(1,'01JGGVSAZSRJBR3HKAB05GEFB7','work','default',1.73573280050541925434e+09,1.73573280074102234845e+09,'-','DONE',7,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280061582112306e+09,NULL,NULL,1.73573280074102234845e+09,NULL,NULL,'1',NULL,NULL,NULL,'[{"name":"first","status":"DONE"},{"name":"second","status":"DONE"}]',NULL,NULL,NULL,NULL,'45ccc9d38233febf668b6f55c987be76',0);
INSERT INTO "jobs" VALUES(2,'01JGGVSB011493S4A2KDPD5523','half','default',1.73573280051384782793e+09,1.73573280081091547012e+09,'-','PARTIAL_SUCCESS',3,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280069415736195e+09,NULL,NULL,1.73573280081091547012e+09,NULL,NULL,'{"done":1}',NULL,'{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"abbe540cdab1db52fdbdf89b517c44a5","errors":[{"code":"MISSING","message":"the other half"}]}',NULL,NULL,NULL,NULL,NULL,NULL,'abbe540cdab1db52fdbdf89b517c44a5',0);
INSERT INTO "jobs" VALUES(3,'01JGGVSB06J34VXE2GCQ6R212D','paint','default',1.7357328005186641217e+09,1.73573280075345182417e+09,'-','DONE',3,1,0,NULL,NULL,NULL,NULL,1,101,0,0,1,NULL,NULL,1.73573280074102234845e+09,NULL,NULL,1.73573280075345182417e+09,NULL,NULL,'10',NULL,NULL,NULL,NULL,'[{"name":"picture.bin","content_type":"application/octet-stream","size":10,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","blob":"01JGGVSB06J34VXE2GCQ6R212D/1/picture.bin"}]',NULL,NULL,NULL,'d0179121d5ef8e120502016356007a95',0);
INSERT INTO "jobs" VALUES(4,'01JGGVSB0C05NW7SXHCCNKNAY9','fail','default',1.73573280052433371548e+09,1.73573280075695133206e+09,'-','ERROR',3,1,0,NULL,NULL,NULL,NULL,1,1,1,0,1,NULL,NULL,1.73573280075345182417e+09,NULL,NULL,1.73573280075695133206e+09,NULL,NULL,NULL,NULL,'{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"04506786a672d6e1524886d426b253e1"}',NULL,NULL,NULL,NULL,NULL,NULL,'04506786a672d6e1524886d426b253e1',0);
INSERT INTO "jobs" VALUES(5,'01JGGVSB0FZBBMHX8EPSJKD8G3','work','default',1.73573280052783632276e+09,1.73573280077168750766e+09,'-','DONE',7,1,0,'{"of":"ann"}',NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280075695133206e+09,NULL,NULL,1.73573280077168750766e+09,NULL,NULL,'2',NULL,NULL,NULL,'[{"name":"first","status":"DONE"},{"name":"second","status":"DONE"}]',NULL,NULL,NULL,NULL,'cc6497ff4cafd6837ae05ac4cd1c4662',0);
INSERT INTO "jobs" VALUES(6,'01JGGVSBA5XC3TZYFBX9JXSAHK','heal','default',1.73573280083739852905e+09,1.73573280084332513808e+09,'-','RETRYING',3,1,0,NULL,NULL,1.73573298466137671469e+09,NULL,1,2,1,0,1,NULL,NULL,1.73573280083937358858e+09,1.73573298466137671469e+09,NULL,NULL,NULL,NULL,NULL,NULL,'{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"47ae0666ac571b61d9bdbfdc79ea75ad"}',NULL,NULL,NULL,NULL,NULL,NULL,'47ae0666ac571b61d9bdbfdc79ea75ad',0);
INSERT INTO "jobs" VALUES(7,'01JGGVSBB1YZKHXZJMYJR3JMRT','work','default',1.7357328008651733398e+09,1.7357328008651733398e+09,'-','PENDING',1,1,0,'{"of":"ann"}',4102444800.0,4102444800.0,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'e7da9c050fb8d9b898e18dbe5b4dd23b',0);
INSERT INTO "jobs" VALUES(8,'01JGGVSBB3AE1M5TSQNFJSDMXM','work','default',1.73573280086757946016e+09,1.73573280087050771719e+09,'-','CANCELLED',2,1,0,'{"of":"ann"}',4102444800.0,NULL,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,1.73573280087050771719e+09,1.73573280087050771719e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'0f7e5e702cc098d7b20f3e8d5fd0d080',0);
INSERT INTO "jobs" VALUES(9,'01JGGVSBBDC8P2GD8AYEQPATYB','rest','other',1.73573280087780523295e+09,1.73573280087780523295e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573280087780523295e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'f7494c4976be24d1244ec2bf8a545538',1);
INSERT INTO "jobs" VALUES(10,'01JGGVSBBG62G1CGDHFG8CK34N','family','default',1735732800.88048,1.73573280089109301571e+09,'-','PROCESSING',5,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280088067436214e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"job_id":"01JGGVSBBNJEW38B3HNQ3G79E4","kind":"work","key":"work#1","status":null},{"job_id":"01JGGVSBBNHBAY3VHJ9W08BYTD","kind":"work","key":"work#2","status":null}]','["01JGGVSBBNJEW38B3HNQ3G79E4","01JGGVSBBNHBAY3VHJ9W08BYTD"]','81e58167144557b6d36287b1d77eb08c',0);
INSERT INTO "jobs" VALUES(11,'01JGGVSBBNJEW38B3HNQ3G79E4','work','default',1.73573280088564944273e+09,1.73573280088916373246e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:22662',1.73573283088694024084e+09,1.73573280088694024093e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE"}]',NULL,'01JGGVSBBG62G1CGDHFG8CK34N',NULL,NULL,'81e58167144557b6d36287b1d77eb08c',0);
INSERT INTO "jobs" VALUES(12,'01JGGVSBBNHBAY3VHJ9W08BYTD','work','default',1.73573280088805723185e+09,1.73573280089590477942e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:22662',1.73573283089234972004e+09,1.73573280089234971996e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE"}]',NULL,'01JGGVSBBG62G1CGDHFG8CK34N',NULL,NULL,'81e58167144557b6d36287b1d77eb08c',0);
INSERT INTO "jobs" VALUES(13,'01JGGVSBCM384GNCWEB5RA88QD','work','default',1.73573280091674327857e+09,1.73573280091674327857e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573280091674327857e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'66e8fa73db8fd1a4bc48a6f28173705f',1);
CREATE TABLE keys (
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  fingerprint BLOB NOT NULL,
  job_id TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (tenant, kind, key)
) WITHOUT ROWID;
INSERT INTO "keys" VALUES('-','work','one',X'696C9423A246C064756A887F9C1DD1568C39500D0D6C6F913B5CF6936662980F','01JGGVSB0FZBBMHX8EPSJKD8G3',1.73573280052880883216e+09);
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
INSERT INTO "steps" VALUES('01JGGVSAZSRJBR3HKAB05GEFB7','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280072671914096e+09);
INSERT INTO "steps" VALUES('01JGGVSAZSRJBR3HKAB05GEFB7','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573280073460340495e+09);
INSERT INTO "steps" VALUES('01JGGVSB0FZBBMHX8EPSJKD8G3','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280076761150359e+09);
INSERT INTO "steps" VALUES('01JGGVSB0FZBBMHX8EPSJKD8G3','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1735732800.76984);
INSERT INTO "steps" VALUES('01JGGVSBBNHBAY3VHJ9W08BYTD','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280089590477942e+09);
INSERT INTO "steps" VALUES('01JGGVSBBNJEW38B3HNQ3G79E4','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280088916373246e+09);
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
  -- the job that it is to become; apart, for it is written once
  submission TEXT
) WITHOUT ROWID;
CREATE INDEX jobs_claim ON jobs (queue, kind, priority DESC, seq) WHERE ready = 1;
CREATE INDEX jobs_due ON jobs (due) WHERE ready = 0 AND due IS NOT NULL;
CREATE INDEX jobs_deadline ON jobs (deadline) WHERE deadline IS NOT NULL AND finished_at IS NULL;
CREATE INDEX jobs_expiry ON jobs (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX jobs_status ON jobs (status, id) WHERE status <> 'DONE';
CREATE INDEX jobs_kind ON jobs (kind, id);
CREATE INDEX events_job ON events (job_id, id);
CREATE INDEX keys_at ON keys (at);
CREATE INDEX keys_job ON keys (job_id);
CREATE INDEX tombstones_at ON tombstones (at);
CREATE INDEX uploads_expiry ON uploads (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX uploads_unfinished ON uploads (replica, updated_at) WHERE status = 'UPLOADING';
CREATE INDEX upload_uses_job ON upload_uses (job_id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',44);
COMMIT;
