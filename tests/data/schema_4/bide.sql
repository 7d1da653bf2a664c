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
INSERT INTO "events" VALUES(1,'-','01JGGVSAZE49R3NE0ZJMK87RE8','status',1.73573280049510669711e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.4949028}');
INSERT INTO "events" VALUES(2,'-','01JGGVSAZNK94Y1RPEHB5ET09Q','status',1.73573280050139641759e+09,'{"kind":"half","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.5011854}');
INSERT INTO "events" VALUES(3,'-','01JGGVSAZRDDN4P1RPKWWSGGFV','status',1.73573280050520539286e+09,'{"kind":"paint","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.5045679}');
INSERT INTO "events" VALUES(4,'-','01JGGVSB02DWDK6HK9S1MH58XP','status',1.73573280051438403126e+09,'{"kind":"fail","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.5141866}');
INSERT INTO "events" VALUES(5,'-','01JGGVSB06915BMNF765CB9JP0','status',1.73573280052100682255e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.5189972}');
INSERT INTO "events" VALUES(6,'-','01JGGVSAZE49R3NE0ZJMK87RE8','status',1.73573280056147313116e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:1499"}');
INSERT INTO "events" VALUES(7,'-','01JGGVSAZNK94Y1RPEHB5ET09Q','status',1.73573280064958357813e+09,'{"kind":"half","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:1499"}');
INSERT INTO "events" VALUES(8,'-','01JGGVSAZE49R3NE0ZJMK87RE8','step',1.73573280071675419802e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:1499","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(9,'-','01JGGVSAZE49R3NE0ZJMK87RE8','step',1.73573280071864867206e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:1499","step":{"name":"first","status":"DONE"}}');
INSERT INTO "events" VALUES(10,'-','01JGGVSAZNK94Y1RPEHB5ET09Q','status',1.73573280071864867206e+09,'{"kind":"half","queue":"default","status":"PARTIAL_SUCCESS","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"1cfbb8b88e680f2d592c274569f2401f","errors":[{"code":"MISSING","message":"the other half"}]},"seconds":0.06906509399414062}');
INSERT INTO "events" VALUES(11,'-','01JGGVSAZRDDN4P1RPKWWSGGFV','status',1.73573280071864867206e+09,'{"kind":"paint","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:1499"}');
INSERT INTO "events" VALUES(12,'-','01JGGVSAZE49R3NE0ZJMK87RE8','step',1.7357328007243216038e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"worker":"host:1499","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(13,'-','01JGGVSAZE49R3NE0ZJMK87RE8','step',1.7357328007243216038e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"worker":"host:1499","step":{"name":"second","status":"DONE"}}');
INSERT INTO "events" VALUES(14,'-','01JGGVSAZRDDN4P1RPKWWSGGFV','status',1.73573280072610616688e+09,'{"kind":"paint","queue":"default","status":"DONE","version":3,"run":1,"attempt":1,"fence":1,"seconds":0.0074574947357177734}');
INSERT INTO "events" VALUES(15,'-','01JGGVSB02DWDK6HK9S1MH58XP','status',1.73573280072610616688e+09,'{"kind":"fail","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:1499"}');
INSERT INTO "events" VALUES(16,'-','01JGGVSAZE49R3NE0ZJMK87RE8','status',1.73573280072845363619e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"seconds":0.16698050498962402}');
INSERT INTO "events" VALUES(17,'-','01JGGVSB06915BMNF765CB9JP0','status',1.73573280072845363619e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:1499"}');
INSERT INTO "events" VALUES(18,'-','01JGGVSB02DWDK6HK9S1MH58XP','status',1.73573280072974276541e+09,'{"kind":"fail","queue":"default","status":"ERROR","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"0efdb84288d7feddec93e6933dd18e11"},"seconds":0.003636598587036133}');
INSERT INTO "events" VALUES(19,'-','01JGGVSB06915BMNF765CB9JP0','step',1.73573280072974276541e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:1499","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(20,'-','01JGGVSB06915BMNF765CB9JP0','step',1.73573280072974276541e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:1499","step":{"name":"first","status":"DONE"}}');
INSERT INTO "events" VALUES(21,'-','01JGGVSB06915BMNF765CB9JP0','step',1.73573280073139882091e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"worker":"host:1499","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(22,'-','01JGGVSB06915BMNF765CB9JP0','step',1.73573280073139882091e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"worker":"host:1499","step":{"name":"second","status":"DONE"}}');
INSERT INTO "events" VALUES(23,'-','01JGGVSB06915BMNF765CB9JP0','status',1.73573280073255085944e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"seconds":0.0040972232818603516}');
INSERT INTO "events" VALUES(24,'-','01JGGVSB7JYHQ46VYZSZGT9BFW','status',1.73573280075436663623e+09,'{"kind":"heal","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.7541337}');
INSERT INTO "events" VALUES(25,'-','01JGGVSB7JYHQ46VYZSZGT9BFW','status',1.73573280075436663623e+09,'{"kind":"heal","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:1499"}');
INSERT INTO "events" VALUES(26,'-','01JGGVSB7JYHQ46VYZSZGT9BFW','status',1.73573280075666809083e+09,'{"kind":"heal","queue":"default","status":"RETRYING","version":3,"run":1,"attempt":1,"fence":1,"due":1735732887.7816815,"nextAttemptAt":1735732887.7816815,"error":{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"75b0b64aa6f04bb841e025e679d34b43"}}');
INSERT INTO "events" VALUES(27,'-','01JGGVSB8DRE88S0F6BFBYRBVS','status',1.7357328007813136578e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":4102444800.0}');
INSERT INTO "events" VALUES(28,'-','01JGGVSB8EGP3S5HBX7RTMS8MT','status',1.73573280078335928913e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":4102444800.0}');
INSERT INTO "events" VALUES(29,'-','01JGGVSB8EGP3S5HBX7RTMS8MT','status',1.73573280078504967689e+09,'{"kind":"work","queue":"default","status":"CANCELLED","version":2,"run":1,"attempt":0,"fence":0,"cancelAsked":true}');
INSERT INTO "events" VALUES(30,'-','01JGGVSB8KJZ8MB7H44P01V3ZY','status',1.73573280078856897351e+09,'{"kind":"rest","queue":"other","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.7878575}');
INSERT INTO "events" VALUES(31,'-','01JGGVSB8NM8YSFS2H1XXAVT4A','status',1.73573280079058146481e+09,'{"kind":"family","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.7898786}');
INSERT INTO "events" VALUES(32,'-','01JGGVSB8NM8YSFS2H1XXAVT4A','status',1.73573280079058146481e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:1499"}');
INSERT INTO "events" VALUES(33,'-','01JGGVSB8RXYGMY97BW965RBJA','status',1.73573280079319882396e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.7930908}');
INSERT INTO "events" VALUES(34,'-','01JGGVSB8NM8YSFS2H1XXAVT4A','status',1.73573280079319882396e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:1499"}');
INSERT INTO "events" VALUES(35,'-','01JGGVSB8RXYGMY97BW965RBJA','status',1.73573280079319882396e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:1499"}');
INSERT INTO "events" VALUES(36,'-','01JGGVSB8R8RY8WBTB6VBHXAP6','status',1.73573280079551100726e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.7942023}');
INSERT INTO "events" VALUES(37,'-','01JGGVSB8NM8YSFS2H1XXAVT4A','status',1.73573280079551100726e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:1499"}');
INSERT INTO "events" VALUES(38,'-','01JGGVSB8RXYGMY97BW965RBJA','step',1.73573280079710030553e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:1499","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(39,'-','01JGGVSB8RXYGMY97BW965RBJA','step',1.73573280079710030553e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:1499","step":{"name":"first","status":"DONE"}}');
INSERT INTO "events" VALUES(40,'-','01JGGVSB8NM8YSFS2H1XXAVT4A','status',1.73573280079710030553e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"parked":true}');
INSERT INTO "events" VALUES(41,'-','01JGGVSB8R8RY8WBTB6VBHXAP6','status',1.73573280079710030553e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:1499"}');
INSERT INTO "events" VALUES(42,'-','01JGGVSB8R8RY8WBTB6VBHXAP6','step',1.73573280079905152323e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:1499","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(43,'-','01JGGVSB8R8RY8WBTB6VBHXAP6','step',1.73573280079905152323e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:1499","step":{"name":"first","status":"DONE"}}');
INSERT INTO "events" VALUES(44,'-','01JGGVSB9K3FXQYMSKAD9WQWQH','status',1.73573280082009029391e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.8199341}');
CREATE TABLE inputs (
  job_id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  input TEXT NOT NULL,
  files TEXT
) WITHOUT ROWID;
INSERT INTO "inputs" VALUES('01JGGVSAZE49R3NE0ZJMK87RE8','-','{"number": 1}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSAZNK94Y1RPEHB5ET09Q','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSAZRDDN4P1RPKWWSGGFV','-','{"size": 10}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB02DWDK6HK9S1MH58XP','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB06915BMNF765CB9JP0','-','{"number": 2}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB7JYHQ46VYZSZGT9BFW','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB8DRE88S0F6BFBYRBVS','-','{"number": 2}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB8EGP3S5HBX7RTMS8MT','-','{"number": 2}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB8KJZ8MB7H44P01V3ZY','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB8NM8YSFS2H1XXAVT4A','-','{"number": 10, "seconds": 60}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB8R8RY8WBTB6VBHXAP6','-','{"number":11,"seconds":60.0}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB8RXYGMY97BW965RBJA','-','{"number":10,"seconds":60.0}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSB9K3FXQYMSKAD9WQWQH','-','{"number": 3}',NULL);
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
, lease_seconds REAL);
INSERT INTO "jobs" VALUES(1,'01JGGVSAZE49R3NE0ZJMK87RE8','work','default',1.73573280049490284923e+09,1.73573280072845363619e+09,'-','DONE',7,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280056147313116e+09,NULL,NULL,1.73573280072845363619e+09,NULL,NULL,'1',NULL,NULL,NULL,'[{"name":"first","status":"DONE"},{"name":"second","status":"DONE"}]',NULL,NULL,NULL,NULL,'0ff1642caaa2c356de323bd5fdee21ef',0,30.0);
INSERT INTO "jobs" VALUES(2,'01JGGVSAZNK94Y1RPEHB5ET09Q','half','default',1.73573280050118541719e+09,1.73573280071864867206e+09,'-','PARTIAL_SUCCESS',3,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280064958357813e+09,NULL,NULL,1.73573280071864867206e+09,NULL,NULL,'{"done":1}',NULL,'{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"1cfbb8b88e680f2d592c274569f2401f","errors":[{"code":"MISSING","message":"the other half"}]}',NULL,NULL,NULL,NULL,NULL,NULL,'1cfbb8b88e680f2d592c274569f2401f',0,30.0);
INSERT INTO "jobs" VALUES(3,'01JGGVSAZRDDN4P1RPKWWSGGFV','paint','default',1.7357328005045678616e+09,1.73573280072610616688e+09,'-','DONE',3,1,0,NULL,NULL,NULL,NULL,1,101,0,0,1,NULL,NULL,1.73573280071864867206e+09,NULL,NULL,1.73573280072610616688e+09,NULL,NULL,'10',NULL,NULL,NULL,NULL,'[{"name":"picture.bin","content_type":"application/octet-stream","size":10,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","blob":"01JGGVSAZRDDN4P1RPKWWSGGFV/1.a7586986/picture.bin"}]',NULL,NULL,NULL,'ab4889a5afad7a5dcefcf4055ddc3be4',0,30.0);
INSERT INTO "jobs" VALUES(4,'01JGGVSB02DWDK6HK9S1MH58XP','fail','default',1.73573280051418662073e+09,1.73573280072974276541e+09,'-','ERROR',3,1,0,NULL,NULL,NULL,NULL,1,1,1,0,1,NULL,NULL,1.73573280072610616688e+09,NULL,NULL,1.73573280072974276541e+09,NULL,NULL,NULL,NULL,'{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"0efdb84288d7feddec93e6933dd18e11"}',NULL,NULL,NULL,NULL,NULL,NULL,'0efdb84288d7feddec93e6933dd18e11',0,30.0);
INSERT INTO "jobs" VALUES(5,'01JGGVSB06915BMNF765CB9JP0','work','default',1.73573280051899719238e+09,1.73573280073255085944e+09,'-','DONE',7,1,0,'{"of":"ann"}',NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280072845363619e+09,NULL,NULL,1.73573280073255085944e+09,NULL,NULL,'2',NULL,NULL,NULL,'[{"name":"first","status":"DONE"},{"name":"second","status":"DONE"}]',NULL,NULL,NULL,NULL,'e4cc03b5fa271352ef35d1c2e33b1684',0,30.0);
INSERT INTO "jobs" VALUES(6,'01JGGVSB7JYHQ46VYZSZGT9BFW','heal','default',1.73573280075413370129e+09,1.73573280075666809083e+09,'-','RETRYING',3,1,0,NULL,NULL,1.73573288778168153762e+09,NULL,1,2,1,0,1,NULL,NULL,1.73573280075436663623e+09,1.73573288778168153762e+09,NULL,NULL,NULL,NULL,NULL,NULL,'{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"75b0b64aa6f04bb841e025e679d34b43"}',NULL,NULL,NULL,NULL,NULL,NULL,'75b0b64aa6f04bb841e025e679d34b43',0,30.0);
INSERT INTO "jobs" VALUES(7,'01JGGVSB8DRE88S0F6BFBYRBVS','work','default',1.73573280078109383581e+09,1.73573280078109383581e+09,'-','PENDING',1,1,0,'{"of":"ann"}',4102444800.0,4102444800.0,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'1bb332af29caa896b230728d1313b423',0,NULL);
INSERT INTO "jobs" VALUES(8,'01JGGVSB8EGP3S5HBX7RTMS8MT','work','default',1.73573280078263950348e+09,1.73573280078504967689e+09,'-','CANCELLED',2,1,0,'{"of":"ann"}',4102444800.0,NULL,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,1.73573280078504967689e+09,1.73573280078504967689e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'690b71281a5ebfbfa0c85f6715b514b8',0,NULL);
INSERT INTO "jobs" VALUES(9,'01JGGVSB8KJZ8MB7H44P01V3ZY','rest','other',1.73573280078785753249e+09,1.73573280078785753249e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573280078785753249e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'f69b852a3bf07a5e24e6b4be9a177e3d',1,NULL);
INSERT INTO "jobs" VALUES(10,'01JGGVSB8NM8YSFS2H1XXAVT4A','family','default',1.73573280078987860677e+09,1.73573280079710030553e+09,'-','PROCESSING',5,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280079058146481e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"job_id":"01JGGVSB8RXYGMY97BW965RBJA","kind":"work","key":"work#1","status":null},{"job_id":"01JGGVSB8R8RY8WBTB6VBHXAP6","kind":"work","key":"work#2","status":null}]','["01JGGVSB8RXYGMY97BW965RBJA","01JGGVSB8R8RY8WBTB6VBHXAP6"]','adc99b51f44a8b2923c3aa4d90f11da5',0,30.0);
INSERT INTO "jobs" VALUES(11,'01JGGVSB8RXYGMY97BW965RBJA','work','default',1.73573280079309082025e+09,1.73573280079710030553e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:1499',1.73573283079319882395e+09,1.73573280079319882396e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE"}]',NULL,'01JGGVSB8NM8YSFS2H1XXAVT4A',NULL,NULL,'adc99b51f44a8b2923c3aa4d90f11da5',0,30.0);
INSERT INTO "jobs" VALUES(12,'01JGGVSB8R8RY8WBTB6VBHXAP6','work','default',1.73573280079420232775e+09,1.73573280079905152323e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:1499',1.73573283079710030552e+09,1.73573280079710030553e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE"}]',NULL,'01JGGVSB8NM8YSFS2H1XXAVT4A',NULL,NULL,'adc99b51f44a8b2923c3aa4d90f11da5',0,30.0);
INSERT INTO "jobs" VALUES(13,'01JGGVSB9K3FXQYMSKAD9WQWQH','work','default',1.73573280081993412977e+09,1.73573280081993412977e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573280081993412977e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'3e4c42da4d54b396402c5c5a78addd57',1,NULL);
CREATE TABLE keys (
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  fingerprint BLOB NOT NULL,
  job_id TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (tenant, kind, key)
) WITHOUT ROWID;
INSERT INTO "keys" VALUES('-','work','one',X'696C9423A246C064756A887F9C1DD1568C39500D0D6C6F913B5CF6936662980F','01JGGVSB06915BMNF765CB9JP0',1.73573280052100682255e+09);
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
INSERT INTO "steps" VALUES('01JGGVSAZE49R3NE0ZJMK87RE8','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280071864867206e+09);
INSERT INTO "steps" VALUES('01JGGVSAZE49R3NE0ZJMK87RE8','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.7357328007243216038e+09);
INSERT INTO "steps" VALUES('01JGGVSB06915BMNF765CB9JP0','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280072974276541e+09);
INSERT INTO "steps" VALUES('01JGGVSB06915BMNF765CB9JP0','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573280073139882091e+09);
INSERT INTO "steps" VALUES('01JGGVSB8R8RY8WBTB6VBHXAP6','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280079905152323e+09);
INSERT INTO "steps" VALUES('01JGGVSB8RXYGMY97BW965RBJA','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280079710030553e+09);
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
INSERT INTO "uploads" VALUES('01JGGVSAY3YM9F34N8GMXTQ8ME','-','DONE','host',10,1.73573280046503400798e+09,4.73573280046503543869e+09,'{"id":"01JGGVSAY3YM9F34N8GMXTQ8ME","way":"tus","name":"file","created_at":1735732800.4517229,"updated_at":1735732800.465034,"content_type":"application/octet-stream","tenant":"-","status":"DONE","replica":"host","size":10,"received":10,"promised":null,"expires_at":4735732800.465035,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","detected":"","blob":"uploads/01JGGVSAY3YM9F34N8GMXTQ8ME/content","chunk_size":null,"chunks":"0","partial":false,"parts":[],"metadata":"","submission":null,"parameter":null,"key":null,"trace_id":null,"job_id":null}',NULL);
INSERT INTO "uploads" VALUES('01JGGVSAZ2MV2G9BRPCXQEPV3S','-','UPLOADING','host',20,1.73573280048913097381e+09,4.73573280048904609674e+09,'{"id":"01JGGVSAZ2MV2G9BRPCXQEPV3S","way":"tus","name":"file","created_at":1735732800.48236,"updated_at":1735732800.489131,"content_type":"application/octet-stream","tenant":"-","status":"UPLOADING","replica":"host","size":20,"received":10,"promised":null,"expires_at":4735732800.489046,"sha256":"","detected":"","blob":null,"chunk_size":null,"chunks":"0","partial":false,"parts":[],"metadata":"","submission":null,"parameter":null,"key":null,"trace_id":null,"job_id":null}',NULL);
CREATE TABLE write_check (
  id INTEGER PRIMARY KEY,
  at REAL NOT NULL
);
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
