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
INSERT INTO "events" VALUES(1,'-','01JGGVSBEK57DFVNS27KV184TK','status',1.73573280097951364517e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.979333}');
INSERT INTO "events" VALUES(2,'-','01JGGVSBERKAXKSYNTS929MJF4','status',1.73573280098435831072e+09,'{"kind":"half","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.9842386}');
INSERT INTO "events" VALUES(3,'-','01JGGVSBEWTABXN38TK5PE9FD5','status',1.73573280098812985422e+09,'{"kind":"paint","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.9880288}');
INSERT INTO "events" VALUES(4,'-','01JGGVSBF098DQE7AM7JQ54TMT','status',1.73573280099219322204e+09,'{"kind":"fail","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.9921064}');
INSERT INTO "events" VALUES(5,'-','01JGGVSBF3N4QGH0SZPNEPQ5YB','status',1.73573280099565362922e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732800.995466}');
INSERT INTO "events" VALUES(6,'-','01JGGVSBEK57DFVNS27KV184TK','status',1.73573280104734730721e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:5475"}');
INSERT INTO "events" VALUES(7,'-','01JGGVSBERKAXKSYNTS929MJF4','status',1.73573280105025696757e+09,'{"kind":"half","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:5475"}');
INSERT INTO "events" VALUES(8,'-','01JGGVSBEK57DFVNS27KV184TK','step',1.73573280115642428395e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:5475","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(9,'-','01JGGVSBEK57DFVNS27KV184TK','step',1.73573280115642428395e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:5475","step":{"name":"first","status":"DONE"}}');
INSERT INTO "events" VALUES(10,'-','01JGGVSBEK57DFVNS27KV184TK','step',1.73573280116694188116e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"worker":"host:5475","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(11,'-','01JGGVSBEK57DFVNS27KV184TK','step',1.73573280116694188116e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"worker":"host:5475","step":{"name":"second","status":"DONE"}}');
INSERT INTO "events" VALUES(12,'-','01JGGVSBEK57DFVNS27KV184TK','status',1.73573280117238450048e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"seconds":0.12503719329833984}');
INSERT INTO "events" VALUES(13,'-','01JGGVSBEWTABXN38TK5PE9FD5','status',1.73573280117238450048e+09,'{"kind":"paint","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:5475"}');
INSERT INTO "events" VALUES(14,'-','01JGGVSBERKAXKSYNTS929MJF4','status',1.73573280118807673458e+09,'{"kind":"half","queue":"default","status":"PARTIAL_SUCCESS","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"5b27ec8c82a92be909dc27cb0e02fca8","errors":[{"code":"MISSING","message":"the other half"}]},"seconds":0.13781976699829102}');
INSERT INTO "events" VALUES(15,'-','01JGGVSBF098DQE7AM7JQ54TMT','status',1.73573280118807673458e+09,'{"kind":"fail","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:5475"}');
INSERT INTO "events" VALUES(16,'-','01JGGVSBEWTABXN38TK5PE9FD5','status',1.73573280119000792503e+09,'{"kind":"paint","queue":"default","status":"DONE","version":3,"run":1,"attempt":1,"fence":1,"seconds":0.017623424530029297}');
INSERT INTO "events" VALUES(17,'-','01JGGVSBF3N4QGH0SZPNEPQ5YB','status',1.73573280119000792503e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:5475"}');
INSERT INTO "events" VALUES(18,'-','01JGGVSBF098DQE7AM7JQ54TMT','status',1.73573280119196462632e+09,'{"kind":"fail","queue":"default","status":"ERROR","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"811f26ea13cc3cd9b82f83f566bf770d"},"seconds":0.0038878917694091797}');
INSERT INTO "events" VALUES(19,'-','01JGGVSBF3N4QGH0SZPNEPQ5YB','step',1.73573280119196462632e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:5475","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(20,'-','01JGGVSBF3N4QGH0SZPNEPQ5YB','step',1.73573280119196462632e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:5475","step":{"name":"first","status":"DONE"}}');
INSERT INTO "events" VALUES(21,'-','01JGGVSBF3N4QGH0SZPNEPQ5YB','step',1.73573280119397234918e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"worker":"host:5475","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(22,'-','01JGGVSBF3N4QGH0SZPNEPQ5YB','step',1.73573280119397234918e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"worker":"host:5475","step":{"name":"second","status":"DONE"}}');
INSERT INTO "events" VALUES(23,'-','01JGGVSBF3N4QGH0SZPNEPQ5YB','status',1.73573280119534158706e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"seconds":0.005333662033081055}');
INSERT INTO "events" VALUES(24,'-','01JGGVSBNVBYATP2GFT98P0XYX','status',1.73573280121175074581e+09,'{"kind":"heal","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732801.2115555}');
INSERT INTO "events" VALUES(25,'-','01JGGVSBNVBYATP2GFT98P0XYX','status',1.73573280121175074581e+09,'{"kind":"heal","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:5475"}');
INSERT INTO "events" VALUES(26,'-','01JGGVSBNVBYATP2GFT98P0XYX','status',1.73573280121431183821e+09,'{"kind":"heal","queue":"default","status":"RETRYING","version":3,"run":1,"attempt":1,"fence":1,"due":1735733396.3126001,"nextAttemptAt":1735733396.3126001,"error":{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"cac398b65c338e143991be1b78091c44"}}');
INSERT INTO "events" VALUES(27,'-','01JGGVSBPS7M9BDKDZ12Z4WHRS','status',1.73573280124129056926e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":4102444800.0}');
INSERT INTO "events" VALUES(28,'-','01JGGVSBPVHRFFK2SET8VNQ0YY','status',1.73573280124326682089e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":4102444800.0}');
INSERT INTO "events" VALUES(29,'-','01JGGVSBPVHRFFK2SET8VNQ0YY','status',1.73573280124647712704e+09,'{"kind":"work","queue":"default","status":"CANCELLED","version":2,"run":1,"attempt":0,"fence":0,"cancelAsked":true}');
INSERT INTO "events" VALUES(30,'-','01JGGVSBQ4F0YJXQ99NSZ33408','status',1.73573280125236988069e+09,'{"kind":"rest","queue":"other","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732801.2521684}');
INSERT INTO "events" VALUES(31,'-','01JGGVSBQ6Q2M6S39J5S30GJTQ','status',1.73573280125425028798e+09,'{"kind":"family","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732801.2540898}');
INSERT INTO "events" VALUES(32,'-','01JGGVSBQ6Q2M6S39J5S30GJTQ','status',1.73573280125425028798e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:5475"}');
INSERT INTO "events" VALUES(33,'-','01JGGVSBQAJHR5NN7WTCASSEEX','status',1.73573280125962662702e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732801.2591195}');
INSERT INTO "events" VALUES(34,'-','01JGGVSBQ6Q2M6S39J5S30GJTQ','status',1.73573280125962662702e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:5475"}');
INSERT INTO "events" VALUES(35,'-','01JGGVSBQAJHR5NN7WTCASSEEX','status',1.73573280125962662702e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:5475"}');
INSERT INTO "events" VALUES(36,'-','01JGGVSBQAPG89DR953ZAPTDRG','status',1.73573280127236104011e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732801.2716448}');
INSERT INTO "events" VALUES(37,'-','01JGGVSBQ6Q2M6S39J5S30GJTQ','status',1.73573280127236104011e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:5475"}');
INSERT INTO "events" VALUES(38,'-','01JGGVSBQ6Q2M6S39J5S30GJTQ','status',1.73573280127389025688e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"parked":true}');
INSERT INTO "events" VALUES(39,'-','01JGGVSBQAPG89DR953ZAPTDRG','status',1.73573280127389025688e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:5475"}');
INSERT INTO "events" VALUES(40,'-','01JGGVSBQAPG89DR953ZAPTDRG','step',1.73573280127589321133e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:5475","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(41,'-','01JGGVSBQAPG89DR953ZAPTDRG','step',1.73573280127589321133e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:5475","step":{"name":"first","status":"DONE"}}');
INSERT INTO "events" VALUES(42,'-','01JGGVSBQAJHR5NN7WTCASSEEX','step',1.73573280127713942527e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:5475","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(43,'-','01JGGVSBQAJHR5NN7WTCASSEEX','step',1.73573280127713942527e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:5475","step":{"name":"first","status":"DONE"}}');
INSERT INTO "events" VALUES(44,'-','01JGGVSBR54SZWBC046R899NGW','status',1.73573280128575778012e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732801.2856061}');
CREATE TABLE inputs (
  job_id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  input TEXT NOT NULL,
  files TEXT
) WITHOUT ROWID;
INSERT INTO "inputs" VALUES('01JGGVSBEK57DFVNS27KV184TK','-','{"number": 1}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBERKAXKSYNTS929MJF4','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBEWTABXN38TK5PE9FD5','-','{"size": 10}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBF098DQE7AM7JQ54TMT','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBF3N4QGH0SZPNEPQ5YB','-','{"number": 2}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBNVBYATP2GFT98P0XYX','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBPS7M9BDKDZ12Z4WHRS','-','{"number": 2}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBPVHRFFK2SET8VNQ0YY','-','{"number": 2}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBQ4F0YJXQ99NSZ33408','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBQ6Q2M6S39J5S30GJTQ','-','{"number": 10, "seconds": 60}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBQAJHR5NN7WTCASSEEX','-','{"number":10,"seconds":60.0}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBQAPG89DR953ZAPTDRG','-','{"number":11,"seconds":60.0}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSBR54SZWBC046R899NGW','-','{"number": 3}',NULL);
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
, lease_seconds REAL, loss_record TEXT);
INSERT INTO "jobs" VALUES(1,'01JGGVSBEK57DFVNS27KV184TK','work','default',1.73573280097933292393e+09,1.73573280117238450048e+09,'-','DONE',7,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280104734730721e+09,NULL,NULL,1.73573280117238450048e+09,NULL,NULL,'1',NULL,NULL,NULL,'[{"name":"first","status":"DONE"},{"name":"second","status":"DONE"}]',NULL,NULL,NULL,NULL,'388b43871d007e65fee1253150973557',0,30.0,NULL);
INSERT INTO "jobs" VALUES(2,'01JGGVSBERKAXKSYNTS929MJF4','half','default',1.73573280098423862456e+09,1.73573280118807673458e+09,'-','PARTIAL_SUCCESS',3,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280105025696757e+09,NULL,NULL,1.73573280118807673458e+09,NULL,NULL,'{"done":1}',NULL,'{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"5b27ec8c82a92be909dc27cb0e02fca8","errors":[{"code":"MISSING","message":"the other half"}]}',NULL,NULL,NULL,NULL,NULL,NULL,'5b27ec8c82a92be909dc27cb0e02fca8',0,30.0,NULL);
INSERT INTO "jobs" VALUES(3,'01JGGVSBEWTABXN38TK5PE9FD5','paint','default',1.73573280098802876477e+09,1.73573280119000792503e+09,'-','DONE',3,1,0,NULL,NULL,NULL,NULL,1,101,0,0,1,NULL,NULL,1.73573280117238450048e+09,NULL,NULL,1.73573280119000792503e+09,NULL,NULL,'10',NULL,NULL,NULL,NULL,'[{"name":"picture.bin","content_type":"application/octet-stream","size":10,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","blob":"01JGGVSBEWTABXN38TK5PE9FD5/1.69291e44/picture.bin"}]',NULL,NULL,NULL,'f57c04d9b87ac7b020579d8f8ed5b3d3',0,30.0,NULL);
INSERT INTO "jobs" VALUES(4,'01JGGVSBF098DQE7AM7JQ54TMT','fail','default',1.73573280099210643773e+09,1.73573280119196462632e+09,'-','ERROR',3,1,0,NULL,NULL,NULL,NULL,1,1,1,0,1,NULL,NULL,1.73573280118807673458e+09,NULL,NULL,1.73573280119196462632e+09,NULL,NULL,NULL,NULL,'{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"811f26ea13cc3cd9b82f83f566bf770d"}',NULL,NULL,NULL,NULL,NULL,NULL,'811f26ea13cc3cd9b82f83f566bf770d',0,30.0,NULL);
INSERT INTO "jobs" VALUES(5,'01JGGVSBF3N4QGH0SZPNEPQ5YB','work','default',1.73573280099546599385e+09,1.73573280119534158706e+09,'-','DONE',7,1,0,'{"of":"ann"}',NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280119000792503e+09,NULL,NULL,1.73573280119534158706e+09,NULL,NULL,'2',NULL,NULL,NULL,'[{"name":"first","status":"DONE"},{"name":"second","status":"DONE"}]',NULL,NULL,NULL,NULL,'33f0ca16234ff1f744c084d7d40ce084',0,30.0,NULL);
INSERT INTO "jobs" VALUES(6,'01JGGVSBNVBYATP2GFT98P0XYX','heal','default',1.735732801211555481e+09,1.73573280121431183821e+09,'-','RETRYING',3,1,0,NULL,NULL,1.73573339631260013578e+09,NULL,1,2,1,0,1,NULL,NULL,1.73573280121175074581e+09,1.73573339631260013578e+09,NULL,NULL,NULL,NULL,NULL,NULL,'{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"cac398b65c338e143991be1b78091c44"}',NULL,NULL,NULL,NULL,NULL,NULL,'cac398b65c338e143991be1b78091c44',0,30.0,NULL);
INSERT INTO "jobs" VALUES(7,'01JGGVSBPS7M9BDKDZ12Z4WHRS','work','default',1.73573280124106860155e+09,1.73573280124106860155e+09,'-','PENDING',1,1,0,'{"of":"ann"}',4102444800.0,4102444800.0,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'62bd05bf7bc6c58df67ef14c3bb8502b',0,NULL,NULL);
INSERT INTO "jobs" VALUES(8,'01JGGVSBPVHRFFK2SET8VNQ0YY','work','default',1.73573280124310135846e+09,1.73573280124647712704e+09,'-','CANCELLED',2,1,0,'{"of":"ann"}',4102444800.0,NULL,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,1.73573280124647712704e+09,1.73573280124647712704e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'9baa23d10f730c8459c4deac4e8ef7a5',0,NULL,NULL);
INSERT INTO "jobs" VALUES(9,'01JGGVSBQ4F0YJXQ99NSZ33408','rest','other',1.73573280125216841693e+09,1.73573280125216841693e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573280125216841693e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'34d977205c6aed898efe574407ecc498',1,NULL,NULL);
INSERT INTO "jobs" VALUES(10,'01JGGVSBQ6Q2M6S39J5S30GJTQ','family','default',1.73573280125408983235e+09,1.73573280127389025688e+09,'-','PROCESSING',5,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280125425028798e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"job_id":"01JGGVSBQAJHR5NN7WTCASSEEX","kind":"work","key":"work#1","status":null},{"job_id":"01JGGVSBQAPG89DR953ZAPTDRG","kind":"work","key":"work#2","status":null}]','["01JGGVSBQAJHR5NN7WTCASSEEX","01JGGVSBQAPG89DR953ZAPTDRG"]','35c3e72eb4b4984286dea72152a1e253',0,30.0,NULL);
INSERT INTO "jobs" VALUES(11,'01JGGVSBQAJHR5NN7WTCASSEEX','work','default',1.73573280125911951063e+09,1.73573280127713942527e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:5475',1.73573283125962662693e+09,1.73573280125962662702e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE"}]',NULL,'01JGGVSBQ6Q2M6S39J5S30GJTQ',NULL,NULL,'35c3e72eb4b4984286dea72152a1e253',0,30.0,NULL);
INSERT INTO "jobs" VALUES(12,'01JGGVSBQAPG89DR953ZAPTDRG','work','default',1.73573280127164483073e+09,1.73573280127589321133e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:5475',1.73573283127389025692e+09,1.73573280127389025688e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE"}]',NULL,'01JGGVSBQ6Q2M6S39J5S30GJTQ',NULL,NULL,'35c3e72eb4b4984286dea72152a1e253',0,30.0,NULL);
INSERT INTO "jobs" VALUES(13,'01JGGVSBR54SZWBC046R899NGW','work','default',1.73573280128560614591e+09,1.73573280128560614591e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573280128560614591e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'b3eeca59afeafc4a1f5df4c1cb75734f',1,NULL,NULL);
CREATE TABLE keys (
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  fingerprint BLOB NOT NULL,
  job_id TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (tenant, kind, key)
) WITHOUT ROWID;
INSERT INTO "keys" VALUES('-','work','one',X'696C9423A246C064756A887F9C1DD1568C39500D0D6C6F913B5CF6936662980F','01JGGVSBF3N4QGH0SZPNEPQ5YB',1.73573280099565362922e+09);
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
INSERT INTO "steps" VALUES('01JGGVSBEK57DFVNS27KV184TK','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280115642428395e+09);
INSERT INTO "steps" VALUES('01JGGVSBEK57DFVNS27KV184TK','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573280116694188116e+09);
INSERT INTO "steps" VALUES('01JGGVSBF3N4QGH0SZPNEPQ5YB','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280119196462632e+09);
INSERT INTO "steps" VALUES('01JGGVSBF3N4QGH0SZPNEPQ5YB','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573280119397234918e+09);
INSERT INTO "steps" VALUES('01JGGVSBQAJHR5NN7WTCASSEEX','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280127713942527e+09);
INSERT INTO "steps" VALUES('01JGGVSBQAPG89DR953ZAPTDRG','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280127589321133e+09);
CREATE TABLE store_id (id TEXT NOT NULL);
INSERT INTO "store_id" VALUES('caeeb5fdae0c7bbf078c522e95f65009');
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
, reserved INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
INSERT INTO "uploads" VALUES('01JGGVSBDGPCPG5JWXEMY7S2TC','-','DONE','host',10,1.73573280096260428428e+09,4.73573280096260547638e+09,'{"id":"01JGGVSBDGPCPG5JWXEMY7S2TC","way":"tus","name":"file","created_at":1735732800.944723,"updated_at":1735732800.9626043,"content_type":"application/octet-stream","tenant":"-","status":"DONE","replica":"host","past_service":false,"size":10,"received":10,"promised":null,"expires_at":4735732800.962605,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","detected":"","blob":"uploads/01JGGVSBDGPCPG5JWXEMY7S2TC/content","chunk_size":null,"chunks":"0","partial":false,"parts":[],"metadata":"","submission":null,"parameter":null,"key":null,"trace_id":null,"job_id":null}',NULL,0);
INSERT INTO "uploads" VALUES('01JGGVSBE8GPFHHZ3YVPJ34R1C','-','UPLOADING','host',10,1.7357328009723329544e+09,4.73573280097226905838e+09,'{"id":"01JGGVSBE8GPFHHZ3YVPJ34R1C","way":"tus","name":"file","created_at":1735732800.9683514,"updated_at":1735732800.972333,"content_type":"application/octet-stream","tenant":"-","status":"UPLOADING","replica":"host","past_service":false,"size":20,"received":10,"promised":null,"expires_at":4735732800.972269,"sha256":"","detected":"","blob":null,"chunk_size":null,"chunks":"0","partial":false,"parts":[],"metadata":"","submission":null,"parameter":null,"key":null,"trace_id":null,"job_id":null}',NULL,10);
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
