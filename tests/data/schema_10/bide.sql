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
INSERT INTO "events" VALUES(1,'-','01JGGVSMJV7RMHK0RX3ST26X9K','status',1.73573281033574199679e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732810.3317072}');
INSERT INTO "events" VALUES(2,'-','01JGGVSMJV7RMHK0RX3ST26X9K','status',1.73573281033574199679e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:15717","waited":0.004034757614135742}');
INSERT INTO "events" VALUES(3,'-','01JGGVSMKA5H9YSDV4FQSZQ14C','status',1.73573281035017871858e+09,'{"kind":"half","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732810.3467724}');
INSERT INTO "events" VALUES(4,'-','01JGGVSMKA5H9YSDV4FQSZQ14C','status',1.73573281035017871858e+09,'{"kind":"half","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:15717","waited":0.0034062862396240234}');
INSERT INTO "events" VALUES(5,'-','01JGGVSMM2DXVQRE4788EPXVZ7','status',1.73573281038496160513e+09,'{"kind":"paint","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732810.3707316}');
INSERT INTO "events" VALUES(6,'-','01JGGVSMN47S0J0CC2B9Y3P8DJ','status',1.73573281041384530065e+09,'{"kind":"fail","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732810.4043083}');
INSERT INTO "events" VALUES(7,'-','01JGGVSMPVMA8TVM6TRB61FCQB','status',1.73573281045992350571e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"due":1735732810.4594138}');
INSERT INTO "events" VALUES(8,'-','01JGGVSMJV7RMHK0RX3ST26X9K','step',1.73573281087749934194e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:15717","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(9,'-','01JGGVSMJV7RMHK0RX3ST26X9K','step',1.73573281089400458334e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:15717","step":{"name":"first","status":"DONE"},"seconds":0.01650524139404297}');
INSERT INTO "events" VALUES(10,'-','01JGGVSMJV7RMHK0RX3ST26X9K','step',1.7357328109105532169e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"worker":"host:15717","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(11,'-','01JGGVSMJV7RMHK0RX3ST26X9K','step',1.7357328109105532169e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"worker":"host:15717","step":{"name":"second","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(12,'-','01JGGVSMJV7RMHK0RX3ST26X9K','status',1.73573281091376042366e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"seconds":0.5780184268951416}');
INSERT INTO "events" VALUES(13,'-','01JGGVSMM2DXVQRE4788EPXVZ7','status',1.73573281091376042366e+09,'{"kind":"paint","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:15717","waited":0.5430288314819336}');
INSERT INTO "events" VALUES(14,'-','01JGGVSMKA5H9YSDV4FQSZQ14C','status',1.73573281092651677129e+09,'{"kind":"half","queue":"default","status":"PARTIAL_SUCCESS","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"4721266c9c7a3a228ad1d86c21c2fb81","errors":[{"code":"MISSING","message":"the other half"}]},"seconds":0.5763380527496338}');
INSERT INTO "events" VALUES(15,'-','01JGGVSMN47S0J0CC2B9Y3P8DJ','status',1.73573281093533492093e+09,'{"kind":"fail","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:15717","waited":0.5310266017913818}');
INSERT INTO "events" VALUES(16,'-','01JGGVSMN47S0J0CC2B9Y3P8DJ','status',1.73573281098662757877e+09,'{"kind":"fail","queue":"default","status":"ERROR","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"ab454d131be5f97973dffa091e7d10c6"},"seconds":0.05129265785217285}');
INSERT INTO "events" VALUES(17,'-','01JGGVSMM2DXVQRE4788EPXVZ7','status',1.73573281098662757877e+09,'{"kind":"paint","queue":"default","status":"DONE","version":3,"run":1,"attempt":1,"fence":1,"seconds":0.07286715507507324}');
INSERT INTO "events" VALUES(18,'-','01JGGVSMPVMA8TVM6TRB61FCQB','status',1.73573281098662757877e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:15717","waited":0.5272138118743896}');
INSERT INTO "events" VALUES(19,'-','01JGGVSMPVMA8TVM6TRB61FCQB','step',1.73573281100515413285e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:15717","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(20,'-','01JGGVSMPVMA8TVM6TRB61FCQB','step',1.73573281100515413285e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:15717","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(21,'-','01JGGVSMPVMA8TVM6TRB61FCQB','step',1.73573281102805852893e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:15717","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(22,'-','01JGGVSMPVMA8TVM6TRB61FCQB','step',1.73573281102805852893e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:15717","step":{"name":"second","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(23,'-','01JGGVSMPVMA8TVM6TRB61FCQB','status',1.73573281103978443147e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"seconds":0.05315685272216797}');
INSERT INTO "events" VALUES(24,'-','01JGGVSN99Y2R69CRBQ5DEN99Y','status',1.73573281104969501494e+09,'{"kind":"heal","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732811.0494967}');
INSERT INTO "events" VALUES(25,'-','01JGGVSN99Y2R69CRBQ5DEN99Y','status',1.73573281104969501494e+09,'{"kind":"heal","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:15717","waited":0.0001983642578125}');
INSERT INTO "events" VALUES(26,'-','01JGGVSN99Y2R69CRBQ5DEN99Y','status',1.73573281106970047954e+09,'{"kind":"heal","queue":"default","status":"RETRYING","version":3,"run":1,"attempt":1,"fence":1,"due":1735733209.4624255,"nextAttemptAt":1735733209.4624255,"error":{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"a3aeb51e0681bc35b0ae45b9d137d530"}}');
INSERT INTO "events" VALUES(27,'-','01JGGVSNAXPFTQB481JWSN4F0S','status',1.73573281110344934466e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"due":4102444800.0}');
INSERT INTO "events" VALUES(28,'-','01JGGVSNB16700DC2MHCQVKKZZ','status',1.73573281110741639132e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"due":4102444800.0}');
INSERT INTO "events" VALUES(29,'-','01JGGVSNB16700DC2MHCQVKKZZ','status',1.73573281111382484442e+09,'{"kind":"work","queue":"default","status":"CANCELLED","version":2,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"cancelAsked":true}');
INSERT INTO "events" VALUES(30,'-','','queue',1.73573281112155890465e+09,'{"queue":"other","paused":true}');
INSERT INTO "events" VALUES(31,'-','01JGGVSNC3KPFVA4PZA3FGBPQS','status',1.73573281113978457454e+09,'{"kind":"rest","queue":"other","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732811.139312}');
INSERT INTO "events" VALUES(32,'-','01JGGVSNCB9ZQCYG4087YWBVP2','status',1.73573281114789724349e+09,'{"kind":"family","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732811.1475592}');
INSERT INTO "events" VALUES(33,'-','01JGGVSNCB9ZQCYG4087YWBVP2','status',1.73573281114789724349e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:15717","waited":0.0003380775451660156}');
INSERT INTO "events" VALUES(34,'-','01JGGVSNDE1FQNZGT1X8QKT8BE','status',1.73573281115138602255e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732811.1509833}');
INSERT INTO "events" VALUES(35,'-','01JGGVSNCB9ZQCYG4087YWBVP2','status',1.73573281115138602255e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:15717"}');
INSERT INTO "events" VALUES(36,'-','01JGGVSNDE1FQNZGT1X8QKT8BE','status',1.73573281115138602255e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:15717","waited":0.00040268898010253906}');
INSERT INTO "events" VALUES(37,'-','01JGGVSNDE1FQNZGT1X8QKT8BE','step',1.73573281115798187259e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:15717","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(38,'-','01JGGVSNDE1FQNZGT1X8QKT8BE','step',1.73573281115798187259e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:15717","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(39,'-','01JGGVSNDEZD8HQ5R3ZRTZEQ8Z','status',1.73573281115798187259e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732811.1577582}');
INSERT INTO "events" VALUES(40,'-','01JGGVSNCB9ZQCYG4087YWBVP2','status',1.73573281115798187259e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:15717"}');
INSERT INTO "events" VALUES(41,'-','01JGGVSNCB9ZQCYG4087YWBVP2','status',1.73573281116140842438e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"parked":true}');
INSERT INTO "events" VALUES(42,'-','01JGGVSNDEZD8HQ5R3ZRTZEQ8Z','status',1.73573281116140842438e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:15717","waited":0.003650188446044922}');
INSERT INTO "events" VALUES(43,'-','01JGGVSNDEZD8HQ5R3ZRTZEQ8Z','step',1.73573281116740655901e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:15717","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(44,'-','01JGGVSNDEZD8HQ5R3ZRTZEQ8Z','step',1.73573281116740655901e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:15717","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(45,'-','01JGGVSNEACWRMQ53RDJ61DY6M','status',1.73573281121099233623e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732811.2104201}');
CREATE TABLE inputs (
  job_id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  input TEXT NOT NULL,
  files TEXT
, search TEXT) WITHOUT ROWID;
INSERT INTO "inputs" VALUES('01JGGVSMJV7RMHK0RX3ST26X9K','-','{"number": 1}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSMKA5H9YSDV4FQSZQ14C','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSMM2DXVQRE4788EPXVZ7','-','{"size": 10}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSMN47S0J0CC2B9Y3P8DJ','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSMPVMA8TVM6TRB61FCQB','-','{"number": 2}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSN99Y2R69CRBQ5DEN99Y','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSNAXPFTQB481JWSN4F0S','-','{"number": 2}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSNB16700DC2MHCQVKKZZ','-','{"number": 2}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSNC3KPFVA4PZA3FGBPQS','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSNCB9ZQCYG4087YWBVP2','-','{"number": 10, "seconds": 60}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSNDE1FQNZGT1X8QKT8BE','-','{"number":10,"seconds":60.0}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSNDEZD8HQ5R3ZRTZEQ8Z','-','{"number":11,"seconds":60.0}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSNEACWRMQ53RDJ61DY6M','-','{"number": 3}',NULL,NULL);
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
INSERT INTO "jobs" VALUES(1,'01JGGVSMJV7RMHK0RX3ST26X9K','work','default',1.73573281033170723911e+09,1.73573281091376042366e+09,'-','DONE',7,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573281033574199679e+09,NULL,NULL,1.73573281091376042366e+09,NULL,NULL,'1',NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732810.8774993,"finished_at":1735732810.8940046},{"name":"second","status":"DONE","started_at":1735732810.9105532,"finished_at":1735732810.9105532}]',NULL,NULL,NULL,NULL,'4cd724762fb4164f094878fbb4561458',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(2,'01JGGVSMKA5H9YSDV4FQSZQ14C','half','default',1.73573281034677243239e+09,1.73573281092651677129e+09,'-','PARTIAL_SUCCESS',3,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573281035017871858e+09,NULL,NULL,1.73573281092651677129e+09,NULL,NULL,'{"done":1}',NULL,'{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"4721266c9c7a3a228ad1d86c21c2fb81","errors":[{"code":"MISSING","message":"the other half"}]}',NULL,NULL,NULL,NULL,NULL,NULL,'4721266c9c7a3a228ad1d86c21c2fb81',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(3,'01JGGVSMM2DXVQRE4788EPXVZ7','paint','default',1.73573281037073159221e+09,1.73573281098662757877e+09,'-','DONE',3,1,0,NULL,NULL,NULL,NULL,1,101,0,0,1,NULL,NULL,1.73573281091376042366e+09,NULL,NULL,1.73573281098662757877e+09,NULL,NULL,'10',NULL,NULL,NULL,NULL,'[{"name":"picture.bin","content_type":"application/octet-stream","size":10,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","blob":"01JGGVSMM2DXVQRE4788EPXVZ7/1.bbd33701/picture.bin"}]',NULL,NULL,NULL,'7e092cab3e0a8caedc65f871aa78ba2d',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(4,'01JGGVSMN47S0J0CC2B9Y3P8DJ','fail','default',1.73573281040430831912e+09,1.73573281098662757877e+09,'-','ERROR',3,1,0,NULL,NULL,NULL,NULL,1,1,1,0,1,NULL,NULL,1.73573281093533492093e+09,NULL,NULL,1.73573281098662757877e+09,NULL,NULL,NULL,NULL,'{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"ab454d131be5f97973dffa091e7d10c6"}',NULL,NULL,NULL,NULL,NULL,NULL,'ab454d131be5f97973dffa091e7d10c6',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(5,'01JGGVSMPVMA8TVM6TRB61FCQB','work','default',1.73573281045941376688e+09,1.73573281103978443147e+09,'-','DONE',7,1,0,'{"of":"ann"}',NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573281098662757877e+09,NULL,NULL,1.73573281103978443147e+09,NULL,NULL,'2',NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732811.0051541,"finished_at":1735732811.0051541},{"name":"second","status":"DONE","started_at":1735732811.0280585,"finished_at":1735732811.0280585}]',NULL,NULL,NULL,NULL,'fbd4c393f6946189c0369fbf4f580fc8',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(6,'01JGGVSN99Y2R69CRBQ5DEN99Y','heal','default',1.7357328110494966507e+09,1.73573281106970047954e+09,'-','RETRYING',3,1,0,NULL,NULL,1.73573320946242547037e+09,NULL,1,2,1,0,1,NULL,NULL,1.73573281104969501494e+09,1.73573320946242547037e+09,NULL,NULL,NULL,NULL,NULL,NULL,'{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"a3aeb51e0681bc35b0ae45b9d137d530"}',NULL,NULL,NULL,NULL,NULL,NULL,'a3aeb51e0681bc35b0ae45b9d137d530',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(7,'01JGGVSNAXPFTQB481JWSN4F0S','work','default',1.73573281110149312024e+09,1.73573281110149312024e+09,'-','PENDING',1,1,0,'{"of":"ann"}',4102444800.0,4102444800.0,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'8bde36aed5f799d84abef100fd437169',0,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(8,'01JGGVSNB16700DC2MHCQVKKZZ','work','default',1.73573281110599470138e+09,1.73573281111382484442e+09,'-','CANCELLED',2,1,0,'{"of":"ann"}',4102444800.0,NULL,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,1.73573281111382484442e+09,1.73573281111382484442e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'f729447524d16565f46da9cf5de29f5c',0,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(9,'01JGGVSNC3KPFVA4PZA3FGBPQS','rest','other',1.73573281113931202892e+09,1.73573281113931202892e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573281113931202892e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'38c45829acb8ab294415b35a028996e5',1,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(10,'01JGGVSNCB9ZQCYG4087YWBVP2','family','default',1.73573281114755916592e+09,1.73573281116140842438e+09,'-','PROCESSING',5,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573281114789724349e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"job_id":"01JGGVSNDE1FQNZGT1X8QKT8BE","kind":"work","key":"work#1","status":null},{"job_id":"01JGGVSNDEZD8HQ5R3ZRTZEQ8Z","kind":"work","key":"work#2","status":null}]','["01JGGVSNDE1FQNZGT1X8QKT8BE","01JGGVSNDEZD8HQ5R3ZRTZEQ8Z"]','dbb50855710c47f2e75ca1f03ae732a0',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(11,'01JGGVSNDE1FQNZGT1X8QKT8BE','work','default',1.73573281115098333356e+09,1.73573281115798187259e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:15717',1.73573284115138602255e+09,1.73573281115138602255e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732811.1579819,"finished_at":1735732811.1579819}]',NULL,'01JGGVSNCB9ZQCYG4087YWBVP2',NULL,NULL,'dbb50855710c47f2e75ca1f03ae732a0',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(12,'01JGGVSNDEZD8HQ5R3ZRTZEQ8Z','work','default',1.73573281115775823594e+09,1.73573281116740655901e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:15717',1.73573284116140842442e+09,1.73573281116140842438e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732811.1674066,"finished_at":1735732811.1674066}]',NULL,'01JGGVSNCB9ZQCYG4087YWBVP2',NULL,NULL,'dbb50855710c47f2e75ca1f03ae732a0',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(13,'01JGGVSNEACWRMQ53RDJ61DY6M','work','default',1.73573281121042013175e+09,1.73573281121042013175e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573281121042013175e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'ea4010280e13893176d47ba9f936ff1a',1,NULL,NULL,NULL,NULL);
CREATE TABLE keys (
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  fingerprint BLOB NOT NULL,
  job_id TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (tenant, kind, key)
) WITHOUT ROWID;
INSERT INTO "keys" VALUES('-','work','one',X'696C9423A246C064756A887F9C1DD1568C39500D0D6C6F913B5CF6936662980F','01JGGVSMPVMA8TVM6TRB61FCQB',1.73573281045992350571e+09);
CREATE TABLE log_state (name TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "log_state" VALUES('epoch','11e4cab4');
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
CREATE TABLE rollups (
  tenant TEXT NOT NULL,
  span INTEGER NOT NULL,
  at INTEGER NOT NULL,
  kind TEXT NOT NULL,
  queue TEXT NOT NULL,
  name TEXT NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (tenant, span, at, kind, queue, name)
) WITHOUT ROWID;
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','failed:BROKEN',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','run.23',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','wait.37',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'family','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'family','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'family','default','wait.0',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','partial',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','run.37',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','wait.8',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'heal','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'heal','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'heal','default','wait.0',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','done',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','run.25',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','wait.37',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'rest','other','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','cancelled',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','done',2);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','run.23',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','run.37',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','started',4);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','step.0:first',3);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','step.0:second',2);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','step.17:first',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','submitted',7);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','wait.0',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','wait.37',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','wait.8',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','wait.9',1);
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
INSERT INTO "search_terms" VALUES('-','ann','label.of','work','default','01JGGVSMPVMA8TVM6TRB61FCQB');
INSERT INTO "search_terms" VALUES('-','ann','label.of','work','default','01JGGVSNAXPFTQB481JWSN4F0S');
INSERT INTO "search_terms" VALUES('-','ann','label.of','work','default','01JGGVSNB16700DC2MHCQVKKZZ');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSMJV7RMHK0RX3ST26X9K');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSMPVMA8TVM6TRB61FCQB');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSNDE1FQNZGT1X8QKT8BE');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSNDEZD8HQ5R3ZRTZEQ8Z');
INSERT INTO "search_terms" VALUES('-','second','step','work','default','01JGGVSMJV7RMHK0RX3ST26X9K');
INSERT INTO "search_terms" VALUES('-','second','step','work','default','01JGGVSMPVMA8TVM6TRB61FCQB');
CREATE TABLE steps (
  job_id TEXT NOT NULL,
  name TEXT NOT NULL,
  tenant TEXT NOT NULL,
  result TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (job_id, name)
) WITHOUT ROWID;
INSERT INTO "steps" VALUES('01JGGVSMJV7RMHK0RX3ST26X9K','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573281089400458334e+09);
INSERT INTO "steps" VALUES('01JGGVSMJV7RMHK0RX3ST26X9K','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.7357328109105532169e+09);
INSERT INTO "steps" VALUES('01JGGVSMPVMA8TVM6TRB61FCQB','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573281100515413285e+09);
INSERT INTO "steps" VALUES('01JGGVSMPVMA8TVM6TRB61FCQB','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573281102805852893e+09);
INSERT INTO "steps" VALUES('01JGGVSNDE1FQNZGT1X8QKT8BE','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573281115798187259e+09);
INSERT INTO "steps" VALUES('01JGGVSNDEZD8HQ5R3ZRTZEQ8Z','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573281116740655901e+09);
CREATE TABLE store_id (id TEXT NOT NULL);
INSERT INTO "store_id" VALUES('fa26a33bbc1ce2d78d9eb3bf29b0f3ac');
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
INSERT INTO "uploads" VALUES('01JGGVSMF67M6HB2NEDG2XM7D6','-','DONE','host',10,1.73573281023983430866e+09,4.7357328102398338317e+09,'{"id":"01JGGVSMF67M6HB2NEDG2XM7D6","way":"tus","name":"file","created_at":1735732810.2148335,"updated_at":1735732810.2398343,"content_type":"application/octet-stream","tenant":"-","status":"DONE","replica":"host","past_service":false,"size":10,"received":10,"promised":null,"expires_at":4735732810.239834,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","detected":"","blob":"uploads/01JGGVSMF67M6HB2NEDG2XM7D6/content","chunk_size":null,"chunks":"0","partial":false,"parts":[],"metadata":"","submission":null,"parameter":null,"key":null,"trace_id":null,"job_id":null,"replayed":false}',NULL,0);
INSERT INTO "uploads" VALUES('01JGGVSMHF7P1DEAZWEQNQMRAB','-','UPLOADING','host',10,1.73573281032528543474e+09,4.73573281032250404352e+09,'{"id":"01JGGVSMHF7P1DEAZWEQNQMRAB","way":"tus","name":"file","created_at":1735732810.287825,"updated_at":1735732810.3252854,"content_type":"application/octet-stream","tenant":"-","status":"UPLOADING","replica":"host","past_service":false,"size":20,"received":10,"promised":null,"expires_at":4735732810.322504,"sha256":"","detected":"","blob":null,"chunk_size":null,"chunks":"0","partial":false,"parts":[],"metadata":"","submission":null,"parameter":null,"key":null,"trace_id":null,"job_id":null,"replayed":false}',NULL,10);
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
CREATE INDEX uploads_tenant ON uploads (tenant, status, id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',45);
COMMIT;
