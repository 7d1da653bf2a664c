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
INSERT INTO "events" VALUES(1,'-','01JGGVSB8G8X2EVTT9Y70C12FQ','status',1.73573280078448200229e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.7842247}');
INSERT INTO "events" VALUES(2,'-','01JGGVSB8JWSX0TKCYC2DDEYMV','status',1.73573280078677773478e+09,'{"kind":"half","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.7865393}');
INSERT INTO "events" VALUES(3,'-','01JGGVSB8MEBK3DRWCVQEP9EZY','status',1.73573280078912115095e+09,'{"kind":"paint","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.7889822}');
INSERT INTO "events" VALUES(4,'-','01JGGVSB8ZCF5082AWB4WS9W3M','status',1.73573280079926443105e+09,'{"kind":"fail","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.7990909}');
INSERT INTO "events" VALUES(5,'-','01JGGVSB95BZD8WB6E3120M5E7','status',1.73573280080591058733e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.8055627}');
INSERT INTO "events" VALUES(6,'-','01JGGVSB8G8X2EVTT9Y70C12FQ','status',1.7357328012167062759e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:21724"}');
INSERT INTO "events" VALUES(7,'-','01JGGVSB8JWSX0TKCYC2DDEYMV','status',1.73573280125623679161e+09,'{"kind":"half","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:21724"}');
INSERT INTO "events" VALUES(8,'-','01JGGVSB8G8X2EVTT9Y70C12FQ','step',1.73573280142746663094e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:21724","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(9,'-','01JGGVSB8G8X2EVTT9Y70C12FQ','step',1.73573280142746663094e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:21724","step":{"name":"first","status":"DONE"}}');
INSERT INTO "events" VALUES(10,'-','01JGGVSB8G8X2EVTT9Y70C12FQ','step',1.73573280143744349476e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"worker":"host:21724","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(11,'-','01JGGVSB8G8X2EVTT9Y70C12FQ','step',1.73573280143744349476e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"worker":"host:21724","step":{"name":"second","status":"DONE"}}');
INSERT INTO "events" VALUES(12,'-','01JGGVSB8G8X2EVTT9Y70C12FQ','status',1.73573280143978238105e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"seconds":0.22307610511779785}');
INSERT INTO "events" VALUES(13,'-','01JGGVSB8MEBK3DRWCVQEP9EZY','status',1.7357328014421608448e+09,'{"kind":"paint","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:21724"}');
INSERT INTO "events" VALUES(14,'-','01JGGVSB8MEBK3DRWCVQEP9EZY','status',1.73573280146228909499e+09,'{"kind":"paint","queue":"default","status":"DONE","version":3,"run":1,"attempt":1,"fence":1,"seconds":0.020128250122070312}');
INSERT INTO "events" VALUES(15,'-','01JGGVSB8ZCF5082AWB4WS9W3M','status',1.73573280146228909499e+09,'{"kind":"fail","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:21724"}');
INSERT INTO "events" VALUES(16,'-','01JGGVSB8ZCF5082AWB4WS9W3M','status',1.73573280146717834468e+09,'{"kind":"fail","queue":"default","status":"ERROR","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"670feeeb2b082d590856b26bf5948732"},"seconds":0.004889249801635742}');
INSERT INTO "events" VALUES(17,'-','01JGGVSB95BZD8WB6E3120M5E7','status',1.73573280146717834468e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:21724"}');
INSERT INTO "events" VALUES(18,'-','01JGGVSB95BZD8WB6E3120M5E7','step',1.73573280147003841398e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:21724","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(19,'-','01JGGVSB95BZD8WB6E3120M5E7','step',1.73573280147003841398e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:21724","step":{"name":"first","status":"DONE"}}');
INSERT INTO "events" VALUES(20,'-','01JGGVSB95BZD8WB6E3120M5E7','step',1.73573280147602081301e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"worker":"host:21724","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(21,'-','01JGGVSB95BZD8WB6E3120M5E7','step',1.73573280147602081301e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"worker":"host:21724","step":{"name":"second","status":"DONE"}}');
INSERT INTO "events" VALUES(22,'-','01JGGVSB95BZD8WB6E3120M5E7','status',1.73573280147978544233e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"seconds":0.012607097625732422}');
INSERT INTO "events" VALUES(23,'-','01JGGVSB8JWSX0TKCYC2DDEYMV','status',1.73573280158996415137e+09,'{"kind":"half","queue":"default","status":"PARTIAL_SUCCESS","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"37b8e881b341aa0dc967476c452a9d0b","errors":[{"code":"MISSING","message":"the other half"}]},"seconds":0.3337273597717285}');
INSERT INTO "events" VALUES(24,'-','01JGGVSC2SM9JQEQ9EB9M658HY','status',1.73573280162623214727e+09,'{"kind":"heal","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732801.6258368}');
INSERT INTO "events" VALUES(25,'-','01JGGVSC2SM9JQEQ9EB9M658HY','status',1.73573280162623214727e+09,'{"kind":"heal","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:21724"}');
INSERT INTO "events" VALUES(26,'-','01JGGVSC2SM9JQEQ9EB9M658HY','status',1.73573280164405059815e+09,'{"kind":"heal","queue":"default","status":"RETRYING","version":3,"run":1,"attempt":1,"fence":1,"due":1735732932.8000944,"nextAttemptAt":1735732932.8000944,"error":{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"4aa8640d09696fa6aac4d4765cc4017d"}}');
INSERT INTO "events" VALUES(27,'-','01JGGVSC44QGW72C25FVVSK9X7','status',1.73573280166917729384e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":4102444800.0}');
INSERT INTO "events" VALUES(28,'-','01JGGVSC64EY0QX5G27GB75M8G','status',1.73573280173278021807e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":4102444800.0}');
INSERT INTO "events" VALUES(29,'-','01JGGVSC64EY0QX5G27GB75M8G','status',1.73573280174037647242e+09,'{"kind":"work","queue":"default","status":"CANCELLED","version":2,"run":1,"attempt":0,"fence":0,"cancelAsked":true}');
INSERT INTO "events" VALUES(30,'-','01JGGVSC719EZEYRT57ANB742G','status',1.73573280176142764096e+09,'{"kind":"rest","queue":"other","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732801.761235}');
INSERT INTO "events" VALUES(31,'-','01JGGVSC7G81HY2WNTKNY7E8HZ','status',1.73573280178003740313e+09,'{"kind":"family","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732801.7763176}');
INSERT INTO "events" VALUES(32,'-','01JGGVSC7G81HY2WNTKNY7E8HZ','status',1.73573280178003740313e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:21724"}');
INSERT INTO "events" VALUES(33,'-','01JGGVSC7XG36N4C93P79KRQK5','status',1.73573280179039740557e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732801.7901697}');
INSERT INTO "events" VALUES(34,'-','01JGGVSC7G81HY2WNTKNY7E8HZ','status',1.73573280179039740557e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:21724"}');
INSERT INTO "events" VALUES(35,'-','01JGGVSC7XG36N4C93P79KRQK5','status',1.73573280179039740557e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:21724"}');
INSERT INTO "events" VALUES(36,'-','01JGGVSC7ZCC42AMZAXGH3QWHK','status',1.73573280180801773069e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732801.804292}');
INSERT INTO "events" VALUES(37,'-','01JGGVSC7G81HY2WNTKNY7E8HZ','status',1.73573280180801773069e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:21724"}');
INSERT INTO "events" VALUES(38,'-','01JGGVSC7XG36N4C93P79KRQK5','step',1.73573280180801773069e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:21724","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(39,'-','01JGGVSC7XG36N4C93P79KRQK5','step',1.73573280180801773069e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:21724","step":{"name":"first","status":"DONE"}}');
INSERT INTO "events" VALUES(40,'-','01JGGVSC7G81HY2WNTKNY7E8HZ','status',1.73573280181977248194e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"parked":true}');
INSERT INTO "events" VALUES(41,'-','01JGGVSC7ZCC42AMZAXGH3QWHK','status',1.73573280181977248194e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:21724"}');
INSERT INTO "events" VALUES(42,'-','01JGGVSC7ZCC42AMZAXGH3QWHK','step',1.73573280183282470704e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:21724","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(43,'-','01JGGVSC7ZCC42AMZAXGH3QWHK','step',1.73573280183282470704e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:21724","step":{"name":"first","status":"DONE"}}');
INSERT INTO "events" VALUES(44,'-','01JGGVSCAXYS8WMN2M96ASDCY3','status',1.73573280188613653183e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732801.885988}');
CREATE TABLE inputs (
  job_id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  input TEXT NOT NULL,
  files TEXT
) WITHOUT ROWID;
INSERT INTO "inputs" VALUES('01JGGVSB8G8X2EVTT9Y70C12FQ','-','{"number": 1}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB8JWSX0TKCYC2DDEYMV','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB8MEBK3DRWCVQEP9EZY','-','{"size": 10}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB8ZCF5082AWB4WS9W3M','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB95BZD8WB6E3120M5E7','-','{"number": 2}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSC2SM9JQEQ9EB9M658HY','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSC44QGW72C25FVVSK9X7','-','{"number": 2}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSC64EY0QX5G27GB75M8G','-','{"number": 2}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSC719EZEYRT57ANB742G','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSC7G81HY2WNTKNY7E8HZ','-','{"number": 10, "seconds": 60}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSC7XG36N4C93P79KRQK5','-','{"number":10,"seconds":60.0}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSC7ZCC42AMZAXGH3QWHK','-','{"number":11,"seconds":60.0}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSCAXYS8WMN2M96ASDCY3','-','{"number": 3}',NULL);
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
INSERT INTO "jobs" VALUES(1,'01JGGVSB8G8X2EVTT9Y70C12FQ','work','default',1.73573280078422474866e+09,1.73573280143978238105e+09,'-','DONE',7,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.7357328012167062759e+09,NULL,NULL,1.73573280143978238105e+09,NULL,NULL,'1',NULL,NULL,NULL,'[{"name":"first","status":"DONE"},{"name":"second","status":"DONE"}]',NULL,NULL,NULL,NULL,'2ad9897b56c8fdc1ffb5969de04e290a',0);
INSERT INTO "jobs" VALUES(2,'01JGGVSB8JWSX0TKCYC2DDEYMV','half','default',1.73573280078653931612e+09,1.73573280158996415137e+09,'-','PARTIAL_SUCCESS',3,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280125623679161e+09,NULL,NULL,1.73573280158996415137e+09,NULL,NULL,'{"done":1}',NULL,'{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"37b8e881b341aa0dc967476c452a9d0b","errors":[{"code":"MISSING","message":"the other half"}]}',NULL,NULL,NULL,NULL,NULL,NULL,'37b8e881b341aa0dc967476c452a9d0b',0);
INSERT INTO "jobs" VALUES(3,'01JGGVSB8MEBK3DRWCVQEP9EZY','paint','default',1.73573280078898215298e+09,1.73573280146228909499e+09,'-','DONE',3,1,0,NULL,NULL,NULL,NULL,1,101,0,0,1,NULL,NULL,1.7357328014421608448e+09,NULL,NULL,1.73573280146228909499e+09,NULL,NULL,'10',NULL,NULL,NULL,NULL,'[{"name":"picture.bin","content_type":"application/octet-stream","size":10,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","blob":"01JGGVSB8MEBK3DRWCVQEP9EZY/1/picture.bin"}]',NULL,NULL,NULL,'00af99e442bd71658a33afee0a4cdfe5',0);
INSERT INTO "jobs" VALUES(4,'01JGGVSB8ZCF5082AWB4WS9W3M','fail','default',1.73573280079909086229e+09,1.73573280146717834468e+09,'-','ERROR',3,1,0,NULL,NULL,NULL,NULL,1,1,1,0,1,NULL,NULL,1.73573280146228909499e+09,NULL,NULL,1.73573280146717834468e+09,NULL,NULL,NULL,NULL,'{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"670feeeb2b082d590856b26bf5948732"}',NULL,NULL,NULL,NULL,NULL,NULL,'670feeeb2b082d590856b26bf5948732',0);
INSERT INTO "jobs" VALUES(5,'01JGGVSB95BZD8WB6E3120M5E7','work','default',1.73573280080556273463e+09,1.73573280147978544233e+09,'-','DONE',7,1,0,'{"of":"ann"}',NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280146717834468e+09,NULL,NULL,1.73573280147978544233e+09,NULL,NULL,'2',NULL,NULL,NULL,'[{"name":"first","status":"DONE"},{"name":"second","status":"DONE"}]',NULL,NULL,NULL,NULL,'b2cc3c2dac33c831c85885b0cd60d639',0);
INSERT INTO "jobs" VALUES(6,'01JGGVSC2SM9JQEQ9EB9M658HY','heal','default',1.7357328016258368492e+09,1.73573280164405059815e+09,'-','RETRYING',3,1,0,NULL,NULL,1.73573293280009436603e+09,NULL,1,2,1,0,1,NULL,NULL,1.73573280162623214727e+09,1.73573293280009436603e+09,NULL,NULL,NULL,NULL,NULL,NULL,'{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"4aa8640d09696fa6aac4d4765cc4017d"}',NULL,NULL,NULL,NULL,NULL,NULL,'4aa8640d09696fa6aac4d4765cc4017d',0);
INSERT INTO "jobs" VALUES(7,'01JGGVSC44QGW72C25FVVSK9X7','work','default',1.73573280166891336442e+09,1.73573280166891336442e+09,'-','PENDING',1,1,0,'{"of":"ann"}',4102444800.0,4102444800.0,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'935d6374c0f5c69f166c54d527e3e90c',0);
INSERT INTO "jobs" VALUES(8,'01JGGVSC64EY0QX5G27GB75M8G','work','default',1.73573280173250675201e+09,1.73573280174037647242e+09,'-','CANCELLED',2,1,0,'{"of":"ann"}',4102444800.0,NULL,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,1.73573280174037647242e+09,1.73573280174037647242e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'7430f93438728daa871611dde27340c4',0);
INSERT INTO "jobs" VALUES(9,'01JGGVSC719EZEYRT57ANB742G','rest','other',1.7357328017612349987e+09,1.7357328017612349987e+09,'-','PENDING',1,1,0,NULL,NULL,1.7357328017612349987e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'db6f1af85b7283adfa7af1b164e25147',1);
INSERT INTO "jobs" VALUES(10,'01JGGVSC7G81HY2WNTKNY7E8HZ','family','default',1.73573280177631759642e+09,1.73573280181977248194e+09,'-','PROCESSING',5,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280178003740313e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"job_id":"01JGGVSC7XG36N4C93P79KRQK5","kind":"work","key":"work#1","status":null},{"job_id":"01JGGVSC7ZCC42AMZAXGH3QWHK","kind":"work","key":"work#2","status":null}]','["01JGGVSC7XG36N4C93P79KRQK5","01JGGVSC7ZCC42AMZAXGH3QWHK"]','7dd5ad76b45853e35377b7c993aa31af',0);
INSERT INTO "jobs" VALUES(11,'01JGGVSC7XG36N4C93P79KRQK5','work','default',1.73573280179016971582e+09,1.73573280180801773069e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:21724',1.73573283179039740561e+09,1.73573280179039740557e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE"}]',NULL,'01JGGVSC7G81HY2WNTKNY7E8HZ',NULL,NULL,'7dd5ad76b45853e35377b7c993aa31af',0);
INSERT INTO "jobs" VALUES(12,'01JGGVSC7ZCC42AMZAXGH3QWHK','work','default',1.7357328018042919636e+09,1.73573280183282470704e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:21724',1.73573283181977248189e+09,1.73573280181977248194e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE"}]',NULL,'01JGGVSC7G81HY2WNTKNY7E8HZ',NULL,NULL,'7dd5ad76b45853e35377b7c993aa31af',0);
INSERT INTO "jobs" VALUES(13,'01JGGVSCAXYS8WMN2M96ASDCY3','work','default',1.735732801885987997e+09,1.735732801885987997e+09,'-','PENDING',1,1,0,NULL,NULL,1.735732801885987997e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'d8a3ca1f71bd7ff8ceb12f02ecfaff1c',1);
CREATE TABLE keys (
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  fingerprint BLOB NOT NULL,
  job_id TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (tenant, kind, key)
) WITHOUT ROWID;
INSERT INTO "keys" VALUES('-','work','one',X'696C9423A246C064756A887F9C1DD1568C39500D0D6C6F913B5CF6936662980F','01JGGVSB95BZD8WB6E3120M5E7',1.73573280080591058733e+09);
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
INSERT INTO "steps" VALUES('01JGGVSB8G8X2EVTT9Y70C12FQ','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280142746663094e+09);
INSERT INTO "steps" VALUES('01JGGVSB8G8X2EVTT9Y70C12FQ','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573280143744349476e+09);
INSERT INTO "steps" VALUES('01JGGVSB95BZD8WB6E3120M5E7','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280147003841398e+09);
INSERT INTO "steps" VALUES('01JGGVSB95BZD8WB6E3120M5E7','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573280147602081301e+09);
INSERT INTO "steps" VALUES('01JGGVSC7XG36N4C93P79KRQK5','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280180801773069e+09);
INSERT INTO "steps" VALUES('01JGGVSC7ZCC42AMZAXGH3QWHK','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280183282470704e+09);
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
INSERT INTO "uploads" VALUES('01JGGVSB7SB9ED41K39J86BF8Q','-','DONE','host',10,1.73573280077377462386e+09,4.73573280077377510056e+09,'{"id":"01JGGVSB7SB9ED41K39J86BF8Q","way":"tus","name":"file","created_at":1735732800.761808,"updated_at":1735732800.7737746,"content_type":"application/octet-stream","tenant":"-","status":"DONE","replica":"host","size":10,"received":10,"promised":null,"expires_at":4735732800.773775,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","detected":"","blob":"uploads/01JGGVSB7SB9ED41K39J86BF8Q/content","chunk_size":null,"chunks":"0","partial":false,"parts":[],"metadata":"","submission":null,"parameter":null,"key":null,"trace_id":null,"job_id":null}',NULL);
INSERT INTO "uploads" VALUES('01JGGVSB88H8HQEHGYJCEHETGG','-','UPLOADING','host',20,1.73573280078185105323e+09,4.73573280078176593772e+09,'{"id":"01JGGVSB88H8HQEHGYJCEHETGG","way":"tus","name":"file","created_at":1735732800.7767572,"updated_at":1735732800.781851,"content_type":"application/octet-stream","tenant":"-","status":"UPLOADING","replica":"host","size":20,"received":10,"promised":null,"expires_at":4735732800.781766,"sha256":"","detected":"","blob":null,"chunk_size":null,"chunks":"0","partial":false,"parts":[],"metadata":"","submission":null,"parameter":null,"key":null,"trace_id":null,"job_id":null}',NULL);
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
